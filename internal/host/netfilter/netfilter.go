// SPDX-License-Identifier: Apache-2.0

// Package netfilter finds the netfilter rules that apply to forwarded IP packets, in the network namespace
// of the calling thread. A forwarding path below the network stack, such as XDP, bypasses them.
//
// It finds
//   - nftables: flowtables, and base chains with a rule or with a policy other than accept, at the hooks
//     prerouting, forward and postrouting of the families ip, ip6 and inet, and at ingress and egress of
//     a device. This includes the chains of iptables-nft.
//   - legacy iptables and ip6tables: the chains PREROUTING, FORWARD and POSTROUTING of each table with a
//     rule or with a policy other than accept.
//
// Every rule counts, even one that only counts packets or accepts them, because only running a rule shows
// what it does to a packet. The package leaves out chains at input and output, which forwarded packets do
// not pass, tables of the families arp and bridge, and dormant tables. FindOn adds IPVS and tc. Programs
// finds eBPF programs at netfilter's hooks, whose network namespace the kernel does not report.
//
// The package uses only system calls, so neither nft nor iptables need be installed. It creates nothing. It
// loads no kernel module if /proc and /lib/modules show which ones there are.
package netfilter

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Values of Finding.Backend: the kernel's part that has the rules.
const (
	NFT       = "nft"
	IPTables  = "iptables"
	IP6Tables = "ip6tables"
)

// Finding is a chain or flowtable that forwarded packets pass, or something else with that effect.
type Finding struct {
	// Backend is NFT, or IPTables or IP6Tables for the legacy tables. FindOn also returns IPVS, TC and TCX, and Programs BPF.
	Backend string `json:"backend"`
	// Family is ip, ip6, inet or netdev.
	Family string `json:"family"`
	Table  string `json:"table"`
	// Chain is the name of the chain or of the flowtable.
	Chain string `json:"chain"`
	// Flowtable is true for a flowtable. Rules then counts the rules that add flows to it.
	Flowtable bool `json:"flowtable,omitempty"`
	// Hook is prerouting, forward, postrouting, ingress or egress.
	Hook string `json:"hook"`
	// Devices are the devices of an ingress or egress hook. A name that ends in * is a prefix.
	Devices []string `json:"devices,omitempty"`
	// Policy is accept or drop for a chain, and otherwise empty.
	Policy string `json:"policy,omitempty"`
	// Rules counts rules, services of IPVS, filters or programs.
	Rules int `json:"rules"`
}

// Values of Finding.Policy.
const (
	accept = "accept"
	drop   = "drop"
)

// String describes the finding in the words of the tool that manages it.
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

// Show returns the command that prints the rules.
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
		// The rules that add flows may be in any chain of the flowtable's table.
		return fmt.Sprintf("nft list table %s %s", f.Family, f.Table)
	default:
		return fmt.Sprintf("nft list chain %s %s %s", f.Family, f.Table, f.Chain)
	}
}

// Summary describes the first three findings, and how many more there are, in one line. It is empty without findings.
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

// Find looks at nftables, then at legacy iptables and ip6tables. A kernel without one of them has no rules
// of it. Find needs CAP_NET_ADMIN in the namespace. If the calling thread is in another namespace than the
// process, the goroutine must be locked to it.
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

// failed adds to err what was tried and, if a privilege is missing, what to do.
func failed(what string, err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%s: %w: needs CAP_NET_ADMIN, run as root", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
