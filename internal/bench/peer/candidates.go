// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"slices"

	"culvert/internal/bench/load"
	"culvert/internal/lab"
)

const (
	// FrameSize is that of the published figures, in bytes with the Ethernet header.
	FrameSize = 138
	// ColdFrames is how many different packets take turns: eight times as many as culvert's cache of hop fields has
	// entries, so that a packet of the same kind is long forgotten when its turn comes again.
	ColdFrames = 32768
)

// Terms are what a scenario says to a device that it has made.
type DeviceOptions struct {
	// Router is the file name of the reference router, by default what 'culvert lab build' has built.
	Router string
	// Size is the length of frames in bytes, 0 for FrameSize.
	Size int
	// On are the CPUs that a process under test may use, all if there are none.
	CPUs []int
	// Lab is the lab that scenario scion3 measures in.
	Lab *LabPath
}

// Candidate is a row that scenarios can have.
type Candidate struct {
	// Name is stable: reports are compared by it.
	Name string
	// Device makes the device under test, nil for none.
	Device func(o DeviceOptions) Device
	// scenarios lists those that measure it.
	scenarios []string
	// SCION rows forward SCION packets, which cannot be as short as others.
	SCION bool
	// Once is set for rows that only the first group of scenario veth has, unless they are asked for.
	MainGroupOnly bool
	// Asked is set for rows that are measured only if they are asked for by name.
	ByNameOnly bool
	// Alone is set for rows whose device is attached for their own rounds only, Paced for those whose best rate is looked
	// for, and Note goes with each sample.
	Exclusive, Paced bool
	Note             string
}

// candidates are the rows of scenarios that have no room of their own, in the order of reports. Names are stable.
var candidates = []Candidate{
	{Name: "direct", scenarios: []string{"veth", "ndr", "latency"}},
	{Name: "bridge", scenarios: []string{"veth", "ndr", "latency"}, Device: func(DeviceOptions) Device { return &Bridge{} }},
	{Name: "forward", scenarios: []string{"veth"}, MainGroupOnly: true, Device: func(DeviceOptions) Device { return &Forward{} }},
	{Name: "redirect", scenarios: []string{"veth", "cost", "ndr", "latency"}, Device: func(DeviceOptions) Device { return &Redirect{} }},
	{Name: "rewrite", scenarios: []string{"veth", "cost"}, SCION: true, MainGroupOnly: true, Device: func(o DeviceOptions) Device {
		return &rewrite{traffic: o.traffic(true)}
	}},
	// culvert watches tracepoints that all devices pass through.
	{Name: "culvert-nomac", scenarios: []string{"veth", "cost", "ndr", "latency"}, SCION: true, Exclusive: true, Device: func(o DeviceOptions) Device {
		return &Culvert{Traffic: o.traffic(true), SkipMAC: true}
	}},
	{Name: "culvert-cold", scenarios: []string{"veth", "cost", "ndr", "latency"}, SCION: true, Exclusive: true, Device: func(o DeviceOptions) Device {
		return &Culvert{Traffic: o.traffic(true)}
	}},
	{Name: "culvert-warm", scenarios: []string{"veth", "cost", "ndr", "latency"}, SCION: true, Exclusive: true, Device: func(o DeviceOptions) Device {
		return &Culvert{Traffic: o.traffic(false)}
	}},
	{Name: "reference", scenarios: []string{"veth", "ndr", "latency"}, SCION: true, Paced: true, Device: func(o DeviceOptions) Device {
		return &Reference{traffic: o.traffic(true), program: o.Router, CPUs: o.CPUs}
	}},
	{Name: "reference-1cpu", scenarios: []string{"veth"}, SCION: true, MainGroupOnly: true, Paced: true, Device: func(o DeviceOptions) Device {
		return &Reference{traffic: o.traffic(true), program: o.Router, CPUs: []int{load.LastCPU()}}
	}},
	{Name: "culvert+reference", scenarios: []string{"veth"}, SCION: true, Exclusive: true, Device: func(o DeviceOptions) Device {
		return &culvertReference{Reference: Reference{traffic: o.traffic(true), program: o.Router}}
	}},
	{Name: "culvert-switch-cold", scenarios: []string{"cost"}, SCION: true, Device: func(o DeviceOptions) Device {
		t := o.traffic(true)
		t.Crossing = true
		return &Culvert{Traffic: t}
	}},
	{
		Name: "culvert", scenarios: []string{"scion3"}, SCION: true, Exclusive: true, Note: floodedNote,
		Device: func(o DeviceOptions) Device { return &labRouter{at: o.Lab, kind: lab.Culvert} },
	},
	{Name: "reference", scenarios: []string{"scion3"}, SCION: true, Exclusive: true, Paced: true, Device: func(o DeviceOptions) Device {
		return &labRouter{at: o.Lab, kind: lab.Reference}
	}},
	{
		Name: "culvert+reference", scenarios: []string{"scion3"}, SCION: true, Exclusive: true, Note: floodedNote,
		Device: func(o DeviceOptions) Device { return &labRouter{at: o.Lab, kind: lab.Reference, inFront: true} },
	},
	{Name: load.KernelSource, scenarios: []string{"generator"}},
	{Name: load.TcpreplaySource, scenarios: []string{"generator"}},
}

// The device's veth is received from where something was first sent to it, which may be the lab's own traffic.
const floodedNote = "flooded with all that the generator can send; runs on its CPU, or on that where the lab's own packets arrive"

// traffic is SCION packets of the length that the terms say, with a hop field of its own in each or always the same.
func (o DeviceOptions) traffic(cold bool) SCIONTraffic {
	size := o.Size
	if size == 0 {
		size = FrameSize
	}
	return SCIONTraffic{Cold: cold, Size: size}
}

// CandidatesOf are the rows of a scenario, in the order of reports.
func CandidatesOf(scenario string) []Candidate {
	return slices.DeleteFunc(slices.Clone(candidates), func(c Candidate) bool { return !slices.Contains(c.scenarios, scenario) })
}
