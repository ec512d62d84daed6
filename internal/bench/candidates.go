// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"slices"

	"culvert/internal/lab"
)

const (
	// frameSize is that of the published figures, in bytes with the Ethernet header.
	frameSize = 138
	// coldFrames is how many different packets take turns: eight times as many as culvert's cache of hop fields has
	// entries, so that a packet of the same kind is long forgotten when its turn comes again.
	coldFrames = 32768
)

// Terms are what a scenario says to a device that it has made.
type Terms struct {
	// Router is the file name of the reference router, by default what 'culvert lab build' has built.
	Router string
	// Size is the length of frames in bytes, 0 for frameSize.
	Size int
	// On are the CPUs that a process under test may use, all if there are none.
	On []int
	// Lab is the lab that scenario scion3 measures in.
	Lab *labPath
}

// candidate is a row that scenarios can have.
type candidate struct {
	name string
	// device makes the device under test, nil for none.
	device func(o Terms) Device
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

// peerCandidates are the rows of scenarios that have no room of their own, in the order of reports. Names are stable.
var peerCandidates = []candidate{
	{name: "direct", scenarios: []string{"veth", "ndr", "latency"}},
	{name: "bridge", scenarios: []string{"veth", "ndr", "latency"}, device: func(Terms) Device { return &bridge{} }},
	{name: "forward", scenarios: []string{"veth"}, once: true, device: func(Terms) Device { return &forward{} }},
	{name: "redirect", scenarios: []string{"veth", "cost", "ndr", "latency"}, device: func(Terms) Device { return &redirect{} }},
	{name: "rewrite", scenarios: []string{"veth", "cost"}, scion: true, once: true, device: func(o Terms) Device {
		return &rewrite{traffic: o.traffic(true)}
	}},
	// culvert watches tracepoints that all devices pass through.
	{name: "culvert-nomac", scenarios: []string{"veth", "cost", "ndr", "latency"}, scion: true, alone: true, device: func(o Terms) Device {
		return &culvert{traffic: o.traffic(true), skipMAC: true}
	}},
	{name: "culvert-cold", scenarios: []string{"veth", "cost", "ndr", "latency"}, scion: true, alone: true, device: func(o Terms) Device {
		return &culvert{traffic: o.traffic(true)}
	}},
	{name: "culvert-warm", scenarios: []string{"veth", "cost", "ndr", "latency"}, scion: true, alone: true, device: func(o Terms) Device {
		return &culvert{traffic: o.traffic(false)}
	}},
	{name: "reference", scenarios: []string{"veth", "ndr", "latency"}, scion: true, paced: true, device: func(o Terms) Device {
		return &reference{traffic: o.traffic(true), program: o.Router, cpus: o.On}
	}},
	{name: "reference-1cpu", scenarios: []string{"veth"}, scion: true, once: true, paced: true, device: func(o Terms) Device {
		return &reference{traffic: o.traffic(true), program: o.Router, cpus: []int{LastCPU()}}
	}},
	{name: "culvert+reference", scenarios: []string{"veth"}, scion: true, alone: true, device: func(o Terms) Device {
		return &fronted{reference: reference{traffic: o.traffic(true), program: o.Router}}
	}},
	{name: "culvert-switch-cold", scenarios: []string{"cost"}, scion: true, device: func(o Terms) Device {
		t := o.traffic(true)
		t.crossing = true
		return &culvert{traffic: t}
	}},
	{
		name: "culvert", scenarios: []string{"scion3"}, scion: true, alone: true, note: floodedNote,
		device: func(o Terms) Device { return &labRouter{at: o.Lab, kind: lab.Culvert} },
	},
	{name: "reference", scenarios: []string{"scion3"}, scion: true, alone: true, paced: true, device: func(o Terms) Device {
		return &labRouter{at: o.Lab, kind: lab.Reference}
	}},
	{
		name: "culvert+reference", scenarios: []string{"scion3"}, scion: true, alone: true, note: floodedNote,
		device: func(o Terms) Device { return &labRouter{at: o.Lab, kind: lab.Reference, fronted: true} },
	},
	{name: kernelSource, scenarios: []string{"generator"}},
	{name: tcpreplaySource, scenarios: []string{"generator"}},
}

// The device's veth is received from where something was first sent to it, which may be the lab's own traffic.
const floodedNote = "flooded with all that the generator can send; runs on its CPU, or on that where the lab's own packets arrive"

// traffic is SCION packets of the length that the terms say, with a hop field of its own in each or always the same.
func (o Terms) traffic(cold bool) scionTraffic {
	size := o.Size
	if size == 0 {
		size = frameSize
	}
	return scionTraffic{cold: cold, size: size}
}

// CandidatesOf are the rows of a scenario, in the order of reports.
func CandidatesOf(scenario string) []candidate {
	return slices.DeleteFunc(slices.Clone(peerCandidates), func(c candidate) bool { return !slices.Contains(c.scenarios, scenario) })
}
