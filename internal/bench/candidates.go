// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"slices"
	"strings"

	"culvert/internal/lab"
)

const (
	// frameSize is that of the published figures, in bytes with the Ethernet header.
	frameSize = 138
	// coldFrames is how many different packets take turns: eight times as many as culvert's cache of hop fields has
	// entries, so that a packet of the same kind is long forgotten when its turn comes again.
	coldFrames = 32768
)

// candidate is a row that scenarios can have.
type candidate struct {
	name string
	// device makes the device under test, nil for none.
	device func(o Options) Device
	// filter makes the packet filter under test of scenario filter.
	filter func() filterPeer
	// connect makes the balancer of connections under test of scenario lb.
	connect func() lbConnector
	// scenarios lists those that measure it.
	scenarios []string
	// scion rows forward SCION packets, which cannot be as short as others.
	scion bool
	// once is set for rows that only the first group of scenario veth has, unless they are asked for.
	once bool
	// asked is set for rows that are measured only if they are asked for by name.
	asked bool
	// alone, paced and note are as for vethRow.
	alone, paced bool
	note         string
}

// candidates are all rows, in the order of reports. Names are stable.
var candidates = []candidate{
	{name: "direct", scenarios: []string{"veth", "ndr", "latency"}},
	{name: "bridge", scenarios: []string{"veth", "ndr", "latency"}, device: func(Options) Device { return &bridge{} }},
	{name: "forward", scenarios: []string{"veth"}, once: true, device: func(Options) Device { return &forward{} }},
	{name: "redirect", scenarios: []string{"veth", "cost", "ndr", "latency"}, device: func(Options) Device { return &redirect{} }},
	{name: "rewrite", scenarios: []string{"veth", "cost"}, scion: true, once: true, device: func(o Options) Device {
		return &rewrite{traffic: o.traffic(true)}
	}},
	// culvert watches tracepoints that all devices pass through.
	{name: "culvert-nomac", scenarios: []string{"veth", "cost", "ndr", "latency"}, scion: true, alone: true, device: func(o Options) Device {
		return &culvert{traffic: o.traffic(true), skipMAC: true}
	}},
	{name: "culvert-cold", scenarios: []string{"veth", "cost", "ndr", "latency"}, scion: true, alone: true, device: func(o Options) Device {
		return &culvert{traffic: o.traffic(true)}
	}},
	{name: "culvert-warm", scenarios: []string{"veth", "cost", "ndr", "latency"}, scion: true, alone: true, device: func(o Options) Device {
		return &culvert{traffic: o.traffic(false)}
	}},
	{name: "reference", scenarios: []string{"veth", "ndr", "latency"}, scion: true, paced: true, device: func(o Options) Device {
		return &reference{traffic: o.traffic(true), program: o.Router, cpus: o.cpus}
	}},
	{name: "reference-1cpu", scenarios: []string{"veth"}, scion: true, once: true, paced: true, device: func(o Options) Device {
		return &reference{traffic: o.traffic(true), program: o.Router, cpus: []int{LastCPU()}}
	}},
	{name: "culvert+reference", scenarios: []string{"veth"}, scion: true, alone: true, device: func(o Options) Device {
		return &fronted{reference: reference{traffic: o.traffic(true), program: o.Router}}
	}},
	{name: "culvert-switch-cold", scenarios: []string{"cost"}, scion: true, device: func(o Options) Device {
		t := o.traffic(true)
		t.crossing = true
		return &culvert{traffic: t}
	}},
	{
		name: "culvert", scenarios: []string{"scion3"}, scion: true, alone: true, note: floodedNote,
		device: func(o Options) Device { return &labRouter{at: o.lab, kind: lab.Culvert} },
	},
	{name: "reference", scenarios: []string{"scion3"}, scion: true, alone: true, paced: true, device: func(o Options) Device {
		return &labRouter{at: o.lab, kind: lab.Reference}
	}},
	{
		name: "culvert+reference", scenarios: []string{"scion3"}, scion: true, alone: true, note: floodedNote,
		device: func(o Options) Device { return &labRouter{at: o.lab, kind: lab.Reference, fronted: true} },
	},
	{name: kernelSource, scenarios: []string{"generator"}},
	{name: tcpreplaySource, scenarios: []string{"generator"}},
}

// The device's veth is received from where something was first sent to it, which may be the lab's own traffic.
const floodedNote = "flooded with all that the generator can send; runs on its CPU, or on that where the lab's own packets arrive"

// traffic is SCION packets of the length that the options say, with a hop field of its own in each or always the same.
func (o Options) traffic(cold bool) scionTraffic {
	size := o.size
	if size == 0 {
		size = frameSize
	}
	return scionTraffic{cold: cold, size: size}
}

// choose finds the rows of a scenario with the names given, or all of them.
func choose(scenario string, names []string) ([]candidate, error) {
	var all, chosen []candidate
	for _, c := range candidates {
		if slices.Contains(c.scenarios, scenario) {
			all = append(all, c)
		}
	}
	known := RowNames(scenario)
	if len(names) == 0 {
		return slices.DeleteFunc(all, func(c candidate) bool { return c.asked }), nil
	}
	for _, name := range names {
		if base, _, variant := strings.Cut(name, "@"); variant && slices.Contains(known, base) {
			return nil, fmt.Errorf("%w row %q of scenario %s: choose variants of row %s with --size and --cpus", ErrUnknown,
				name, scenario, base)
		}
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%w row %q of scenario %s: there are %s", ErrUnknown, name, scenario,
				strings.Join(known, ", "))
		}
	}
	for _, c := range all {
		if slices.Contains(names, c.name) {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}
