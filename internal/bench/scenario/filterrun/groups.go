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
	idle int
	// set is how many prefixes the set of sources has, 0 for a rule about ICMP in its place.
	set int
	// sources is how many addresses the flood comes from, 0 for one.
	sources int
	// pass has packets sent that no rule drops.
	pass bool
	// share, if not 0, is the rate at which packets are sent, as a share of what iptables-raw takes of a flood; pace is
	// that in packets a second, once it is known.
	share, pace float64
	// tcp has transactions of an innocent client counted.
	tcp bool
	// rows are those that the group has unless others are asked for, all if empty.
	rows []string
	// cost has culvert's programs measured by themselves.
	cost bool
	// open is set in groups of rows without any rule.
	open bool
}

// Rows that groups compare with, and those that have few rows.
var (
	rulesRows = []string{"none", "xdp-drop", "culvert", "nft-netdev", "iptables-raw"}
	setRows   = []string{"xdp-drop", "culvert", "nft-netdev", "ipset"}
	tcpRows   = []string{"xdp-icmp", "culvert", "nft-netdev", "iptables-raw", "iptables-conntrack"}
)

// nftMost is how large a set nftables gets: it takes more than a minute for a million prefixes.
const nftMost = 100_000

// Sources of a flood that caches hold, and that they do not.
const (
	warmSources = 16
	coldSources = 65536
)

// allGroups are all there are, in batches whose rows take turns.
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

// chosenGroups are those that the options ask for, all without. The beginning of a name asks for all that begin so up to
// a dash. Batches without any are left out.
func chosenGroups(o scenario.Options) ([][]*group, error) {
	all := allGroups()
	if len(o.Groups) == 0 {
		return all, nil
	}
	asked := func(name, word string) bool { return name == word || strings.HasPrefix(name, word+"-") }
	for _, word := range o.Groups {
		if !slices.ContainsFunc(Groups(), func(name string) bool { return asked(name, word) }) {
			return nil, fmt.Errorf("%w group %q: there are %s, and load, rules, set, set-10 and the like for all of a kind",
				load.ErrUnknown, word, strings.Join(Groups(), ", "))
		}
	}
	var kept [][]*group
	for _, batch := range all {
		batch = slices.DeleteFunc(batch, func(g *group) bool {
			return !slices.ContainsFunc(o.Groups, func(word string) bool { return asked(g.name, word) })
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
		// A flood that nobody drops is answered.
		return g.pass
	case "xdp-drop":
		return !g.pass && !g.tcp
	}
	if c.Name == "nft-netdev" && g.set > nftMost {
		return false
	}
	return len(g.rows) == 0 || slices.Contains(g.rows, c.Name)
}

// nice is the nice value of the group's generators, which have a client beside them where there are transactions.
func (g *group) nice() int {
	if g.tcp {
		return soonGenerator
	}
	return 0
}

// against are the rows that others of the group are compared with.
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

// frames are the packets of the group to a host.
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

// rulesOf is what the filter of a row has.
func (g *group) rulesOf(c peer.Candidate) ruleSet {
	rules := ruleSet{Idle: g.idle, Set: randomPrefixes(g.set)}
	if c.Name == "ipset" && g.sources == 0 {
		// Otherwise it would be iptables.
		rules.Set = []netip.Prefix{netip.PrefixFrom(floodSource, floodSource.BitLen())}
	}
	return rules
}
