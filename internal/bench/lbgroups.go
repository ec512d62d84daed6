// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"slices"
	"strings"
)

// lbGroup is a set of rows of scenario lb that get the same packets and are measured in turns.
type lbGroup struct {
	name string
	// flows is how many flows take turns, lbEndless for another one with each packet.
	flows uint32
	// syn has packets that open connections, else they are acknowledgements of open ones.
	syn bool
	// cores is how many CPUs send and balance, each a part of the flows.
	cores int
	// tcp has connections measured in place of packets, cost culvert's program by itself.
	tcp, cost bool
}

// lbCores is what groups begin with whose rows run on one or more CPUs.
const lbCores = "cores"

// lbGroups are all that there are on a machine with so many CPUs, and with a large table of so many flows.
func lbGroups(cpus int, large uint32) []*lbGroup {
	all := []*lbGroup{
		{name: "known", flows: lbClients, cores: 1},
		{name: "syn", flows: lbEndless, syn: true, cores: 1},
		{name: "million", flows: large, cores: 1},
	}
	for n := 1; n < cpus; n *= 2 {
		all = append(all, &lbGroup{name: fmt.Sprintf("%s-%d", lbCores, n), flows: lbClients, cores: n})
	}
	if cpus > 1 {
		all = append(all, &lbGroup{name: fmt.Sprintf("%s-%d", lbCores, cpus), flows: lbClients, cores: cpus})
	}
	return append(all, &lbGroup{name: "tcp", tcp: true}, &lbGroup{name: costGroup, cost: true})
}

// LBGroups lists the names of the groups of scenario lb on this machine.
func LBGroups() []string {
	var names []string
	for _, g := range lbGroups(allowedCPUs(), lbMillion) {
		names = append(names, g.name)
	}
	return names
}

// chosenLBGroups are those that the options ask for, all without. The beginning of a name asks for all that begin so up to a
// dash.
func chosenLBGroups(o Options) ([]*lbGroup, error) {
	large := uint32(lbMillion)
	if o.Sample > 0 {
		large = uint32(o.Sample)
	}
	all := lbGroups(allowedCPUs(), large)
	if len(o.Groups) == 0 {
		return all, nil
	}
	asked := func(g *lbGroup, word string) bool { return g.name == word || strings.HasPrefix(g.name, word+"-") }
	for _, word := range o.Groups {
		if !slices.ContainsFunc(all, func(g *lbGroup) bool { return asked(g, word) }) {
			return nil, fmt.Errorf("%w group %q: there are %s, and cores for all of those", ErrUnknown, word, strings.Join(LBGroups(), ", "))
		}
	}
	return slices.DeleteFunc(all, func(g *lbGroup) bool {
		return !slices.ContainsFunc(o.Groups, func(word string) bool { return asked(g, word) })
	}), nil
}

// table tells whether the group has a large table of flows, all of which are known.
func (g *lbGroup) table() bool { return g.flows != lbClients && g.flows != lbEndless }

// shape has the packets of the group sent. Where there are many flows the generator makes their sources itself; those
// that are meant to be new are none of those that a balancer has been tried with.
func (g *lbGroup) shape(v *vethOptions) {
	v.Frames = lbPackets(lbClients, g.syn)
	if g.flows != lbClients {
		v.Frames, v.Vary = v.Frames[:1], g.flows
	}
	if g.flows == lbEndless {
		v.VaryFrom = lbClients
	}
	v.Sink, v.Size = SinkOptions{MinLen: lbFrame}, lbFrame
}
