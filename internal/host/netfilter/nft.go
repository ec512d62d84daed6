// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// What linux/netfilter.h and nf_tables.h have beyond the unix package.
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

// hookName is empty for hooks that forwarded packets do not pass. Numbers are the family's.
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

// nftTable is what distinguishes a table.
type nftTable struct {
	family uint8
	name   string
}

// Generation changes with each change of nftables' rules in this network namespace: as long as it
// stays, nftables need not be looked at again. It is 0 on a kernel without nftables. Legacy tables
// have nothing of the kind.
func Generation() (uint32, error) {
	generation, _, err := nftGeneration()
	return generation, err
}

// nftGeneration also says whether there is nftables at all.
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

// missing takes what the kernel answers, before all else that it checks but the privilege, when it
// has no nf_tables or no nfnetlink.
func missing(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPROTONOSUPPORT)
}

func findNFT() ([]Finding, error) { return settledNFT(readNFT) }

// settledNFT reads until all is of one moment: tables, chains, rules and flowtables are asked for one
// after the other, and the generation tells when something has changed meanwhile.
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
	return nil, fmt.Errorf("list the nftables rules: they changed during each of %d attempts: try again when they rest", attempts)
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
		// The chain's own counter of uses would do, but it shows changes that are not committed.
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

// baseChain takes the kernel's description of a chain; ok is false for one that forwarded packets do
// not enter from a hook.
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

func flowtable(family uint8, a attributes) (f Finding, ok bool) {
	name, known := families[family]
	hook := parse(a[nftaFlowtableHook])
	return Finding{
		Backend: NFT, Family: name, Flowtable: true, Hook: "ingress",
		Table: a.text(nftaFlowtableTable), Chain: a.text(nftaFlowtableName),
		Devices: devices(hook[nftaFlowtableHookDevs]), Rules: int(a.number(nftaFlowtableUse)),
	}, known
}

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
	slices.Sort(names) // the kernel's order is not the same each time
	return names
}
