// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"net/netip"

	"golang.org/x/net/bpf"
)

// Action is what becomes of the packets that a rule matches.
type Action string

const (
	// Drop drops them.
	Drop Action = "drop"
	// Pass lets them go on behind the filter: no later rule and no protected service sees them.
	Pass Action = "pass"
	// Count counts them; the next rule is asked.
	Count Action = "count"
	// Limit drops what is over a rate; for the rest the next rule is asked.
	Limit Action = "limit"
)

// Per says what has a rate of its own under a limit.
type Per string

const (
	// PerRule is one rate for all that the rule matches.
	PerRule Per = ""
	// PerSrc is one for each source, or each prefix of sources.
	PerSrc Per = "src"
	// PerDst is the same for destinations.
	PerDst Per = "dst"
)

// Rate bounds the packets that match a rule.
type Rate struct {
	// Rate is in packets a second, or in bytes a second of whole frames.
	Rate  uint64
	Bytes bool `json:",omitempty"`
	// Burst is how many packets or bytes may come at once; 0 leaves it to the data plane.
	Burst uint64 `json:",omitempty"`
	// Per and the prefix lengths say what shares a rate. Length 0 is a whole address.
	Per              Per   `json:",omitempty"`
	Prefix4, Prefix6 uint8 `json:",omitempty"`
	// Entries is how many addresses are kept in mind at least; 0 leaves it to the data plane.
	Entries int `json:",omitempty"`
}

// SetRef asks for a set, or with Not for what is not in it.
type SetRef struct {
	Set string
	Not bool `json:",omitempty"`
}

// Rule matches a packet if all its parts do; without parts it matches every packet.
type Rule struct {
	// Name is its own: counters and rates stay with it.
	Name string
	// Interfaces that the packet may have come in by; none means any.
	Interfaces []string `json:",omitempty"`
	// Src and Dst are sets that its addresses have to be in.
	Src []SetRef `json:",omitempty"`
	Dst []SetRef `json:",omitempty"`
	// Code is an expression as classic BPF, checked (cbpf.Program.Check); none matches every packet.
	Code []bpf.RawInstruction `json:",omitempty"`
	// Expr is the expression in words, if Code comes from one.
	Expr   string `json:",omitempty"`
	Action Action
	// Rate goes with Limit.
	Rate *Rate `json:",omitempty"`
	// File says that the rule comes from the configuration file, and changes with it.
	File bool `json:",omitempty"`
}

// Set is a named set of prefixes, or of addresses with ports. Its members are in the kernel alone.
type Set struct {
	Name      string
	Endpoints bool `json:",omitempty"`
	File      bool `json:",omitempty"`
}

// Service is protected against floods of SYNs.
type Service struct {
	Addr netip.AddrPort
	// Forwarded says that another host has the service.
	Forwarded bool `json:",omitempty"`
	// MSS, WindowScale: what the answers to SYNs announce, for a service on another host; 0 leaves it to the data plane.
	MSS         uint16 `json:",omitempty"`
	WindowScale uint8  `json:",omitempty"`
	File        bool   `json:",omitempty"`
}

// TopBy is what packets are told apart by.
type TopBy uint8

// The numbers are those of bpf/filter/top.h.
const (
	TopOff TopBy = iota
	TopSrc
	TopDst
	TopPrefix // of the source: /24, /48
	TopPort   // of the destination, with its protocol
)

// Filter is everything that a filter does.
type Filter struct {
	Rules    []Rule    `json:",omitempty"`
	Sets     []Set     `json:",omitempty"`
	Services []Service `json:",omitempty"`
	Top      TopBy     `json:",omitempty"`
}

// Protected are the addresses of its services.
func (f *Filter) Protected() (all []netip.AddrPort) {
	for _, s := range f.Services {
		all = append(all, s.Addr)
	}
	return all
}
