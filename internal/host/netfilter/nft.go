// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Constants of linux/netfilter.h and nf_tables.h that the unix package lacks.
const (
	nfInetIngress = 5

	nftaHookDevs     = 4
	nftaDeviceName   = 1
	nftaDevicePrefix = 2

	nftaFlowtableTable    = 1
	nftaFlowtableName     = 2
	nftaFlowtableHook     = 3
	nftaFlowtableUse      = 4
	nftaFlowtableHookDevs = 3
)

var families = map[uint8]string{
	unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_NETDEV: "netdev",
}

// hookName returns the name of a hook by its number in a family, "" for hooks that forwarded packets do not pass.
func hookName(family uint8, hook uint32) string {
	if family == unix.NFPROTO_NETDEV {
		switch hook {
		case unix.NF_NETDEV_INGRESS:
			return "ingress"
		case unix.NF_NETDEV_EGRESS:
			return "egress"
		}
		return ""
	}
	switch hook {
	case unix.NF_INET_PRE_ROUTING:
		return "prerouting"
	case unix.NF_INET_FORWARD:
		return "forward"
	case unix.NF_INET_POST_ROUTING:
		return "postrouting"
	case nfInetIngress:
		return "ingress"
	}
	return ""
}

// nftTable identifies a table.
type nftTable struct {
	family uint8
	name   string
}

// Generation returns a number that changes with each change of nftables' rules in this network namespace.
// While it is the same, nftables need not be looked at again. It is 0 on a kernel without nftables. Legacy
// tables have no such number.
func Generation() (uint32, error) {
	generation, _, err := nftGeneration()
	return generation, err
}

// nftGeneration is Generation, and also reports whether the kernel has nftables.
func nftGeneration() (generation uint32, present bool, err error) {
	if !askable("/") {
		return 0, false, nil
	}
	err = ask(unix.NFT_MSG_GETGEN, unix.NFPROTO_UNSPEC, nil, func(_ uint8, a attributes) {
		generation = a.number(unix.NFTA_GEN_ID)
	})
	if missing(err) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, failed("ask for the generation of the nftables rules", err)
	}
	return generation, true, nil
}

// missing reports whether an error is the kernel's answer to any request if it has no nf_tables or no
// nfnetlink. Only the privilege is checked before.
func missing(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPROTONOSUPPORT)
}

func findNFT() ([]Finding, error) { return settledNFT(readNFT) }

// settledNFT reads until the result is consistent. Tables, chains, rules and flowtables are separate
// requests, and the generation shows whether something has changed in between.
func settledNFT(read func() ([]Finding, error)) ([]Finding, error) {
	const attempts = 20
	for range attempts {
		before, present, err := nftGeneration()
		if err != nil || !present {
			return nil, err
		}
		found, err := read()
		if errors.Is(err, nl.ErrDumpInterrupted) {
			continue
		}
		if err != nil {
			return nil, failed("list the nftables rules", err)
		}
		after, err := Generation()
		if err != nil {
			return nil, err
		}
		if after == before {
			return found, nil
		}
	}
	return nil, fmt.Errorf("list the nftables rules: they changed during each of %d attempts: try again when nothing changes them", attempts)
}

func readNFT() ([]Finding, error) {
	awake := map[nftTable]bool{}
	err := dump(unix.NFT_MSG_GETTABLE, unix.NFPROTO_UNSPEC, nil, func(family uint8, a attributes) {
		if a.number(unix.NFTA_TABLE_FLAGS)&unix.NFT_TABLE_F_DORMANT == 0 {
			awake[nftTable{family, a.text(unix.NFTA_TABLE_NAME)}] = true
		}
	})
	if err != nil {
		return nil, err
	}
	var chains []Finding
	var numbers []uint8
	err = dump(unix.NFT_MSG_GETCHAIN, unix.NFPROTO_UNSPEC, nil, func(family uint8, a attributes) {
		if f, ok := baseChain(family, a); ok && awake[nftTable{family, f.Table}] {
			chains, numbers = append(chains, f), append(numbers, family)
		}
	})
	if err != nil {
		return nil, err
	}
	var found []Finding
	for i, f := range chains {
		// The chain's use count is no substitute, because it includes changes that are not committed.
		of := []string{unix.NFTA_RULE_TABLE: f.Table, unix.NFTA_RULE_CHAIN: f.Chain}
		err := dump(unix.NFT_MSG_GETRULE, numbers[i], of, func(uint8, attributes) { f.Rules++ })
		if err != nil {
			return nil, err
		}
		if f.Rules > 0 || f.Policy != accept {
			found = append(found, f)
		}
	}
	err = dump(unix.NFT_MSG_GETFLOWTABLE, unix.NFPROTO_UNSPEC, nil, func(family uint8, a attributes) {
		if f, ok := flowtable(family, a); ok && awake[nftTable{family, f.Table}] {
			found = append(found, f)
		}
	})
	return found, err
}

// baseChain reads the kernel's description of a chain. ok is false if no hook that forwarded packets pass
// leads to it.
func baseChain(family uint8, a attributes) (f Finding, ok bool) {
	name, known := families[family]
	if !known || a[unix.NFTA_CHAIN_HOOK] == nil {
		return f, false
	}
	hook := parse(a[unix.NFTA_CHAIN_HOOK])
	f = Finding{
		Backend: NFT, Family: name, Policy: accept,
		Table: a.text(unix.NFTA_CHAIN_TABLE), Chain: a.text(unix.NFTA_CHAIN_NAME),
		Hook: hookName(family, hook.number(unix.NFTA_HOOK_HOOKNUM)),
	}
	if a[unix.NFTA_CHAIN_POLICY] != nil && a.number(unix.NFTA_CHAIN_POLICY) == nfDrop {
		f.Policy = drop
	}
	if list := hook[nftaHookDevs]; list != nil {
		f.Devices = devices(list)
	} else if one := hook.text(unix.NFTA_HOOK_DEV); one != "" {
		f.Devices = []string{one}
	}
	return f, f.Hook != ""
}

// flowtable reads the kernel's description of a flowtable.
func flowtable(family uint8, a attributes) (f Finding, ok bool) {
	name, known := families[family]
	hook := parse(a[nftaFlowtableHook])
	return Finding{
		Backend: NFT, Family: name, Flowtable: true, Hook: "ingress",
		Table: a.text(nftaFlowtableTable), Chain: a.text(nftaFlowtableName),
		Devices: devices(hook[nftaFlowtableHookDevs]), Rules: int(a.number(nftaFlowtableUse)),
	}, known
}

// devices reads a list of device names.
func devices(list []byte) []string {
	var names []string
	each(list, func(kind uint16, value []byte) {
		switch kind {
		case nftaDeviceName:
			names = append(names, text(value))
		case nftaDevicePrefix:
			names = append(names, text(value)+"*")
		}
	})
	slices.Sort(names) // the kernel's order varies
	return names
}
