// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"

	"golang.org/x/net/bpf"
)

// FilterAction is what becomes of the packets that a rule matches.
type FilterAction string

const (
	// FilterDrop drops them.
	FilterDrop FilterAction = "drop"
	// FilterPass lets them go on behind the filter: no later rule and no protected service sees them.
	FilterPass FilterAction = "pass"
	// FilterCount counts them; the next rule is asked.
	FilterCount FilterAction = "count"
	// FilterLimit drops what is over a rate; for the rest the next rule is asked.
	FilterLimit FilterAction = "limit"
)

// FilterPer says what has a rate of its own under a limit.
type FilterPer string

const (
	// FilterPerRule is one rate for all that the rule matches.
	FilterPerRule FilterPer = ""
	// FilterPerSrc is one for each source, or each prefix of sources.
	FilterPerSrc FilterPer = "src"
	// FilterPerDst is the same for destinations.
	FilterPerDst FilterPer = "dst"
)

// FilterRate bounds the packets that match a rule.
type FilterRate struct {
	// Rate is in packets a second, or in bytes a second of whole frames.
	Rate  uint64
	Bytes bool `json:",omitempty"`
	// Burst is how many packets or bytes may come at once; 0 leaves it to the data plane.
	Burst uint64 `json:",omitempty"`
	// Per and the prefix lengths say what shares a rate. Length 0 is a whole address.
	Per              FilterPer `json:",omitempty"`
	Prefix4, Prefix6 uint8     `json:",omitempty"`
	// Entries is how many addresses are kept in mind at least; 0 leaves it to the data plane.
	Entries int `json:",omitempty"`
}

// FilterSetRef asks for a set, or with Not for what is not in it.
type FilterSetRef struct {
	Set string
	Not bool `json:",omitempty"`
}

// FilterRule matches a packet if all its parts do; without parts it matches every packet.
type FilterRule struct {
	// Name is its own: counters and rates stay with it.
	Name string
	// Interfaces that the packet may have come in by; none means any.
	Interfaces []string `json:",omitempty"`
	// Src and Dst are sets that its addresses have to be in.
	Src []FilterSetRef `json:",omitempty"`
	Dst []FilterSetRef `json:",omitempty"`
	// Code is an expression as classic BPF, checked (cbpf.Program.Check); none matches every packet.
	Code []bpf.RawInstruction `json:",omitempty"`
	// Expr is the expression in words, if Code comes from one.
	Expr   string `json:",omitempty"`
	Action FilterAction
	// Rate goes with FilterLimit.
	Rate *FilterRate `json:",omitempty"`
	// File says that the rule comes from the configuration file, and changes with it.
	File bool `json:",omitempty"`
}

// FilterSet is a named set of prefixes, or of addresses with ports. Its members are in the kernel alone.
type FilterSet struct {
	Name      string
	Endpoints bool `json:",omitempty"`
	File      bool `json:",omitempty"`
}

// FilterService is protected against floods of SYNs.
type FilterService struct {
	Addr netip.AddrPort
	// Forwarded says that another host has the service.
	Forwarded bool `json:",omitempty"`
	// MSS, WindowScale: what the answers to SYNs announce, for a service on another host; 0 leaves it to the data plane.
	MSS         uint16 `json:",omitempty"`
	WindowScale uint8  `json:",omitempty"`
	File        bool   `json:",omitempty"`
}

// FilterTopBy is what packets are told apart by.
type FilterTopBy uint8

// The numbers are those of bpf/filter/top.h.
const (
	FilterTopOff FilterTopBy = iota
	FilterTopSrc
	FilterTopDst
	FilterTopPrefix // of the source: /24, /48
	FilterTopPort   // of the destination, with its protocol
)

// Filter is everything that a filter does.
type Filter struct {
	Rules    []FilterRule    `json:",omitempty"`
	Sets     []FilterSet     `json:",omitempty"`
	Services []FilterService `json:",omitempty"`
	Top      FilterTopBy     `json:",omitempty"`
}
