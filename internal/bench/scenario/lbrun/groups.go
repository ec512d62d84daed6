// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"fmt"
	"slices"
	"strings"

	"culvert/internal/bench/load"
	"culvert/internal/bench/scenario"
)

// group is a set of rows of scenario lb that get the same packets and are measured in turns.
type group struct {
	name string
	// flows is how many flows take turns, endless for another one with each packet.
	flows uint32
	// syn has packets that open connections, else they are acknowledgements of open ones.
	syn bool
	// cores is how many CPUs send and balance, each a part of the flows.
	cores int
	// tcp has connections measured in place of packets, cost culvert's program by itself.
	tcp, cost bool
}

// cores is what groups begin with whose rows run on one or more CPUs.
const cores = "cores"

// allGroups are all that there are on a machine with so many CPUs, and with a large table of so many flows.
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

// chosenGroups are those that the options ask for, all without. The beginning of a name asks for all that begin so up to a
// dash.
func chosenGroups(o scenario.Options) ([]*group, error) {
	large := uint32(million)
	if o.Sample > 0 {
		large = uint32(o.Sample)
	}
	all := allGroups(load.AllowedCPUs(), large)
	if len(o.Groups) == 0 {
		return all, nil
	}
	asked := func(g *group, word string) bool { return g.name == word || strings.HasPrefix(g.name, word+"-") }
	for _, word := range o.Groups {
		if !slices.ContainsFunc(all, func(g *group) bool { return asked(g, word) }) {
			return nil, fmt.Errorf("%w group %q: there are %s, and cores for all of those", load.ErrUnknown, word, strings.Join(Groups(), ", "))
		}
	}
	return slices.DeleteFunc(all, func(g *group) bool {
		return !slices.ContainsFunc(o.Groups, func(word string) bool { return asked(g, word) })
	}), nil
}

// table tells whether the group has a large table of flows, all of which are known.
func (g *group) table() bool { return g.flows != clients && g.flows != endless }

// Shape has the packets of the group sent. Where there are many flows the generator makes their sources itself; those
// that are meant to be new are none of those that a balancer has been tried with.
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
