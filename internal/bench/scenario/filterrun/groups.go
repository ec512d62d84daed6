// SPDX-License-Identifier: Apache-2.0

package filterrun

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario"
)

// group is a set of rows of scenario filter that get the same packets and have the same rules.
type group struct {
	name string
	// idle is the number of rules that match no packet.
	idle int
	// set is the number of prefixes in the set of sources, 0 for a rule for ICMP instead.
	set int
	// sources is the number of addresses that the flood comes from, 0 for one.
	sources int
	// pass selects packets that no rule drops.
	pass bool
	// share, if not 0, is the rate of the packets, as a share of the rate at which iptables-raw drops a flood. pace is that
	// rate in packets a second, once it is known.
	share, pace float64
	// tcp selects the measurement of an innocent client's transactions during floods.
	tcp bool
	// rows are the rows of the group. Empty stands for all.
	rows []string
	// cost selects the measurement of culvert's programs by themselves.
	cost bool
	// open is set for rows without any rule.
	open bool
}

// The rows of groups that do not have all rows.
var (
	rulesRows = []string{"none", "xdp-drop", "culvert", "nft-netdev", "iptables-raw"}
	setRows   = []string{"xdp-drop", "culvert", "nft-netdev", "ipset"}
	tcpRows   = []string{"xdp-icmp", "culvert", "nft-netdev", "iptables-raw", "iptables-conntrack"}
)

// maxNFTSet is the number of prefixes in the largest set that nftables gets. It needs more than a minute to load a million.
const maxNFTSet = 100_000

// Numbers of sources of a flood: few enough for caches to hold them, and too many.
const (
	warmSources = 16
	coldSources = 65536
)

// allGroups lists all groups, in batches. The rows of a batch take turns.
func allGroups() [][]*group {
	var loads, rules, sets []*group
	for _, percent := range []int{25, 50, 100} {
		loads = append(loads, &group{name: "load-" + strconv.Itoa(percent), share: float64(percent) / 100})
	}
	for _, n := range []int{1, 10, 100, 1000} {
		name := "rules-" + strconv.Itoa(n)
		rules = append(rules,
			&group{name: name + "-drop", idle: n - 1, rows: rulesRows},
			&group{name: name + "-pass", idle: n - 1, pass: true, rows: rulesRows})
	}
	for _, n := range []int{0, 10, 10_000, 1_000_000} {
		name := "set-none"
		if n > 0 {
			name = "set-" + strconv.Itoa(n)
		}
		sets = append(sets,
			&group{name: name + "-warm", set: n, sources: warmSources, rows: setRows},
			&group{name: name + "-cold", set: n, sources: coldSources, rows: setRows})
	}
	return [][]*group{
		{{name: floodGroup}}, loads, rules, sets, {{name: scenario.CostGroup, cost: true}}, {{name: "tcp", tcp: true, rows: tcpRows}},
	}
}

// Groups lists the names of the groups of scenario filter.
func Groups() []string {
	var names []string
	for _, batch := range allGroups() {
		for _, g := range batch {
			names = append(names, g.name)
		}
	}
	return names
}

// chosenGroups returns the groups that the options select, or all if they select none. The beginning of names up to a dash
// selects all groups that begin so. Batches without any groups are left out.
func chosenGroups(o scenario.Options) ([][]*group, error) {
	all := allGroups()
	if len(o.Groups) == 0 {
		return all, nil
	}
	selects := func(word, name string) bool { return name == word || strings.HasPrefix(name, word+"-") }
	for _, word := range o.Groups {
		if !slices.ContainsFunc(Groups(), func(name string) bool { return selects(word, name) }) {
			return nil, fmt.Errorf("%w group %q: there are %s, and load, rules, set, set-10 and the like for all of a kind",
				load.ErrUnknown, word, strings.Join(Groups(), ", "))
		}
	}
	var kept [][]*group
	for _, batch := range all {
		batch = slices.DeleteFunc(batch, func(g *group) bool {
			return !slices.ContainsFunc(o.Groups, func(word string) bool { return selects(word, g.name) })
		})
		if len(batch) > 0 {
			kept = append(kept, batch)
		}
	}
	return kept, nil
}

// has tells whether a row is measured in the group.
func (g *group) has(c peer.Candidate) bool {
	switch c.Name {
	case "none":
		// The host would answer a flood of ICMP that no filter drops.
		return g.pass
	case "xdp-drop":
		return !g.pass && !g.tcp
	}
	if c.Name == "nft-netdev" && g.set > maxNFTSet {
		return false
	}
	return len(g.rows) == 0 || slices.Contains(g.rows, c.Name)
}

// nice is the nice value of the group's generators. With transactions, a client runs on the generator's CPU.
func (g *group) nice() int {
	if g.tcp {
		return niceGenerator
	}
	return 0
}

// against are the rows that the other rows of the group are compared with.
func (g *group) against() []string {
	switch {
	case g.sources > 0:
		return []string{"xdp-drop", "ipset", "nft-netdev"}
	case len(g.rows) > 0:
		return []string{"none", "xdp-drop", "iptables-raw", "nft-netdev"}
	default:
		return []string{"xdp-drop", "iptables-raw", "iptables-input", "iptables-conntrack"}
	}
}

// frames makes the packets of the group.
func (g *group) frames(p peer.Path, set []netip.Prefix) ([][]byte, error) {
	switch {
	case g.pass:
		return innocentUDP(p)
	case g.sources > 0 && len(set) > 0:
		return floodOf(p, set, g.sources), nil
	case g.sources > 0:
		return floodOf(p, []netip.Prefix{netip.PrefixFrom(floodSource, 8)}, g.sources), nil
	default:
		return floodICMP(p), nil
	}
}

// rulesOf are the rules of a row's filter.
func (g *group) rulesOf(c peer.Candidate) ruleSet {
	rules := ruleSet{Idle: g.idle, Set: randomPrefixes(g.set)}
	if c.Name == "ipset" && g.sources == 0 {
		// Without a set the row would measure the same as iptables-raw.
		rules.Set = []netip.Prefix{netip.PrefixFrom(floodSource, floodSource.BitLen())}
	}
	return rules
}
