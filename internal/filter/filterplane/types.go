// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"net/netip"

	"golang.org/x/net/bpf"
)

// Action is what a rule does with the packets that it matches.
type Action string

const (
	// Drop drops them.
	Drop Action = "drop"
	// Pass lets them skip the rest of the filter: no later rule and no protected service sees them.
	Pass Action = "pass"
	// Count counts them. They go on to the next rule.
	Count Action = "count"
	// Limit drops those that are over a rate. The others go on to the next rule.
	Limit Action = "limit"
)

// Per says which packets share a rate.
type Per string

const (
	// PerRule is one rate for all packets that the rule matches.
	PerRule Per = ""
	// PerSrc is a rate for each source, or each prefix of sources.
	PerSrc Per = "src"
	// PerDst is a rate for each destination, or each prefix of destinations.
	PerDst Per = "dst"
)

// Rate limits the packets that match a rule.
type Rate struct {
	// Rate is in packets per second or, with Bytes, in bytes of whole frames per second.
	Rate  uint64
	Bytes bool `json:",omitempty"`
	// Burst is how many packets or bytes may come at once. 0 is a default, which depends on Rate.
	Burst uint64 `json:",omitempty"`
	// Per and the prefix lengths say which packets share a rate. A length of 0 is a whole address.
	Per              Per   `json:",omitempty"`
	Prefix4, Prefix6 uint8 `json:",omitempty"`
	// Entries is for how many addresses or prefixes there is room at least. 0 is the default, 65,536.
	Entries int `json:",omitempty"`
}

// SetRef requires that an address is in a set or, with Not, that it is not.
type SetRef struct {
	Set string
	Not bool `json:",omitempty"`
}

// Rule matches a packet if the interfaces, the sets and the code all match. A rule that has none of them matches every packet.
type Rule struct {
	// Name is unique among the rules. Counters and the state of a limit belong to it.
	Name string
	// Interfaces are those that the packet may come in by. None means any.
	Interfaces []string `json:",omitempty"`
	// Src and Dst are sets for the source and the destination of the packet.
	Src []SetRef `json:",omitempty"`
	Dst []SetRef `json:",omitempty"`
	// Code is an expression as classic BPF that has passed cbpf.Program.Check. It matches every packet if it is empty.
	Code []bpf.RawInstruction `json:",omitempty"`
	// Expr is libpcap's expression, if Code was compiled from one.
	Expr   string `json:",omitempty"`
	Action Action
	// Rate is set if Action is Limit, and only then.
	Rate *Rate `json:",omitempty"`
	// File says that the rule is from the configuration file. The next start replaces it by what the file then has.
	File bool `json:",omitempty"`
}

// Set is a named set of prefixes or, with Endpoints, of addresses with ports. The members are in maps only.
type Set struct {
	Name      string
	Endpoints bool `json:",omitempty"`
	// File says that the set is from the configuration file.
	File bool `json:",omitempty"`
}

// Service is a TCP service that is protected against floods of SYNs.
type Service struct {
	Addr netip.AddrPort
	// Forwarded says that the service is on another host, behind this one.
	Forwarded bool `json:",omitempty"`
	// MSS and WindowScale are what the answers to SYNs for a forwarded service announce. 0 is the default, 1460 and 7.
	MSS         uint16 `json:",omitempty"`
	WindowScale uint8  `json:",omitempty"`
	// File says that the service is from the configuration file.
	File bool `json:",omitempty"`
}

// TopBy is the property by which packets are attributed to talkers.
type TopBy uint8

// The numbers are those of bpf/filter/top.h.
const (
	TopOff TopBy = iota
	TopSrc
	TopDst
	TopPrefix // of the source: /24, /48
	TopPort   // of the destination, with its protocol
)

// Filter is the content of a filter. Rules are in the order in which packets meet them.
type Filter struct {
	Rules    []Rule    `json:",omitempty"`
	Sets     []Set     `json:",omitempty"`
	Services []Service `json:",omitempty"`
	Top      TopBy     `json:",omitempty"`
	// Named is the highest number in a name that was made up for a rule. Rules made later get higher ones.
	Named int `json:",omitempty"`
}

// Protected returns the addresses of f's services.
func (f *Filter) Protected() (all []netip.AddrPort) {
	for _, s := range f.Services {
		all = append(all, s.Addr)
	}
	return all
}
