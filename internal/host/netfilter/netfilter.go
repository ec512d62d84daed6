// SPDX-License-Identifier: Apache-2.0

// Package netfilter finds what in netfilter forwarded IP packets pass, in the network namespace of
// the calling thread: a forwarding path below the stack, such as XDP, goes past all of it.
//
// Found are
//   - nftables: base chains at the hooks prerouting, forward and postrouting of the families ip, ip6
//     and inet, and at ingress and egress of a device, that have a rule or a policy other than
//     accept; and flowtables. What iptables-nft makes is among them.
//   - legacy iptables and ip6tables: PREROUTING, FORWARD and POSTROUTING of each table, by the same
//     measure.
//
// Any rule counts, also one that only counts or accepts: whether a rule changes what becomes of a
// packet cannot be told without running it. Not found are chains at input and output, which
// forwarded packets do not pass, tables of the families arp and bridge, and dormant tables. FindOn adds
// IPVS and tc, Programs eBPF programs at netfilter's hooks, of which the kernel does not tell the namespace.
//
// Nothing but system calls is used: neither nft nor iptables need be installed. Nothing is created by
// looking, and no kernel module is loaded where /proc and /lib/modules tell which ones are there.
package netfilter

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// What keeps rules, as the Backend of a Finding.
const (
	NFT       = "nft"
	IPTables  = "iptables"
	IP6Tables = "ip6tables"
)

// Finding is a chain, or a flowtable, that forwarded packets pass.
type Finding struct {
	// Backend is NFT, IPTables or IP6Tables; the latter two are the legacy ones. FindOn and Programs add IPVS, TC, TCX and BPF.
	Backend string `json:"backend"`
	// Family is ip, ip6, inet or netdev.
	Family string `json:"family"`
	Table  string `json:"table"`
	// Chain is the name of the chain or of the flowtable.
	Chain string `json:"chain"`
	// Flowtable is set for a flowtable; Rules counts those that add flows to it then.
	Flowtable bool `json:"flowtable,omitempty"`
	// Hook is prerouting, forward, postrouting, ingress or egress.
	Hook string `json:"hook"`
	// Devices are those that an ingress or egress hook is at; a name that ends in * is a prefix.
	Devices []string `json:"devices,omitempty"`
	// Policy is accept or drop, and empty for a flowtable.
	Policy string `json:"policy,omitempty"`
	Rules  int    `json:"rules"`
}

// The policies.
const (
	accept = "accept"
	drop   = "drop"
)

// String names it in the words of the tool that made it.
func (f Finding) String() string {
	words := []string{f.Backend}
	if f.Backend == NFT || f.Backend == BPF {
		words = append(words, f.Family)
	}
	if f.Table != "" {
		words = append(words, f.Table)
	}
	if f.Flowtable {
		words = append(words, "flowtable")
	}
	if f.Chain != "" {
		words = append(words, f.Chain)
	}
	const most = 2
	if n := len(f.Devices); n > most {
		words = append(words, "on", strings.Join(f.Devices[:most], ", "), "and", fmt.Sprint(n-most), "more")
	} else if n > 0 {
		words = append(words, "on", strings.Join(f.Devices, ", "))
	}
	unit := map[string]string{IPVS: "service", TC: "filter", TCX: "program", BPF: "program"}[f.Backend]
	if unit == "" {
		unit = "rule"
	}
	size := fmt.Sprint(f.Rules, " ", unit, "s")
	switch f.Rules {
	case 0:
		size = "no " + unit + "s"
	case 1:
		size = "1 " + unit
	}
	if f.Policy != accept && f.Policy != "" {
		size += ", policy " + f.Policy
	}
	return fmt.Sprintf("%s (%s)", strings.Join(words, " "), size)
}

// Show is the command that prints the rules.
func (f Finding) Show() string {
	switch {
	case f.Backend == IPVS:
		return "ipvsadm -L -n"
	case f.Backend == TC:
		return fmt.Sprintf("tc filter show dev %s %s", f.Devices[0], f.Hook)
	case f.Backend == TCX:
		return "bpftool net show dev " + f.Devices[0]
	case f.Backend == BPF:
		return "bpftool link show"
	case f.Backend != NFT:
		return fmt.Sprintf("%s-legacy -t %s -S %s", f.Backend, f.Table, f.Chain)
	case f.Flowtable:
		// A flowtable itself says little; the rules that add to it may be in any chain of its table.
		return fmt.Sprintf("nft list table %s %s", f.Family, f.Table)
	default:
		return fmt.Sprintf("nft list chain %s %s %s", f.Family, f.Table, f.Chain)
	}
}

// Summary names the first three for a message of one line; it is empty when there are none.
func Summary(findings []Finding) string {
	const most = 3
	var names []string
	for _, f := range findings[:min(len(findings), most)] {
		names = append(names, f.String())
	}
	s := strings.Join(names, ", ")
	if more := len(findings) - most; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

// Find looks at nftables, then at legacy iptables and ip6tables. A kernel without one of them has
// nothing of it. It needs CAP_NET_ADMIN over the namespace, and the calling goroutine locked to its
// thread when that is not in the namespace of the process.
func Find() ([]Finding, error) {
	found, err := findNFT()
	if err != nil {
		return nil, err
	}
	for _, l := range []legacy{ip4, ip6} {
		more, err := l.find()
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}

// failed adds to err what was tried and, where the privilege lacks, what to do.
func failed(what string, err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%s: %w: needs CAP_NET_ADMIN, run as root", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
