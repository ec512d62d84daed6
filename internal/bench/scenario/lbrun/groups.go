// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"fmt"
	"slices"
	"strings"

	"culvert/internal/bench/load"
	"culvert/internal/bench/scenario"
)

// group is a set of rows of scenario lb that get the same packets and take turns.
type group struct {
	name string
	// flows is the number of flows that take turns. It is endless if each packet has a flow of its own.
	flows uint32
	// syn selects SYNs. Without it packets are acknowledgements in open connections.
	syn bool
	// cores is the number of CPUs that send and balance. Each has a part of the flows.
	cores int
	// tcp selects the measurement of connections instead of packets, cost that of culvert's program by itself.
	tcp, cost bool
}

// cores is the prefix of the names of groups that differ in the number of CPUs.
const cores = "cores"

// allGroups lists all groups on a machine with the given number of CPUs. large is the number of flows in the large flow table.
func allGroups(cpus int, large uint32) []*group {
	all := []*group{
		{name: "known", flows: clients, cores: 1},
		{name: "syn", flows: endless, syn: true, cores: 1},
		{name: "million", flows: large, cores: 1},
	}
	for n := 1; n < cpus; n *= 2 {
		all = append(all, &group{name: fmt.Sprintf("%s-%d", cores, n), flows: clients, cores: n})
	}
	if cpus > 1 {
		all = append(all, &group{name: fmt.Sprintf("%s-%d", cores, cpus), flows: clients, cores: cpus})
	}
	return append(all, &group{name: "tcp", tcp: true}, &group{name: scenario.CostGroup, cost: true})
}

// Groups lists the names of the groups of scenario lb on this machine.
func Groups() []string {
	var names []string
	for _, g := range allGroups(load.AllowedCPUs(), million) {
		names = append(names, g.name)
	}
	return names
}

// chosenGroups returns the groups that the options select, or all if they select none. The beginning of names up to a dash
// selects all groups that begin so.
func chosenGroups(o scenario.Options) ([]*group, error) {
	large := uint32(million)
	if o.Sample > 0 {
		large = uint32(o.Sample)
	}
	all := allGroups(load.AllowedCPUs(), large)
	if len(o.Groups) == 0 {
		return all, nil
	}
	selects := func(word string, g *group) bool { return g.name == word || strings.HasPrefix(g.name, word+"-") }
	for _, word := range o.Groups {
		if !slices.ContainsFunc(all, func(g *group) bool { return selects(word, g) }) {
			return nil, fmt.Errorf("%w group %q: there are %s, and cores for all of those", load.ErrUnknown, word, strings.Join(Groups(), ", "))
		}
	}
	return slices.DeleteFunc(all, func(g *group) bool {
		return !slices.ContainsFunc(o.Groups, func(word string) bool { return selects(word, g) })
	}), nil
}

// hasLargeTable tells whether the group has a large flow table, in which all flows are known.
func (g *group) hasLargeTable() bool { return g.flows != clients && g.flows != endless }

// SetTraffic sets the packets of the group. If there are many flows the generator makes their sources itself. New flows are
// none of those by which verify has checked the balancer.
func (g *group) SetTraffic(v *scenario.VethOptions) {
	v.Frames = makePackets(clients, g.syn)
	if g.flows != clients {
		v.Frames, v.Vary = v.Frames[:1], g.flows
	}
	if g.flows == endless {
		v.VaryFrom = clients
	}
	v.Sink, v.Size = load.SinkOptions{MinLen: frameLen}, frameLen
}
