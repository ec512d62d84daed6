// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"slices"

	"culvert/internal/bench/load"
	"culvert/internal/lab"
)

const (
	// FrameSize is the length of frames in the published figures, in bytes with the Ethernet header.
	FrameSize = 138
	// ColdFrames is the number of different packets that take turns. It is eight times the number of entries in culvert's
	// cache of hop fields, so that the cache has evicted a packet's hop field when its turn comes again.
	ColdFrames = 32768
)

// DeviceOptions are a scenario's options for the devices that it makes.
type DeviceOptions struct {
	// Router is the path of the reference router. Empty stands for the one that 'culvert lab build' has built.
	Router string
	// Size is the length of frames in bytes, 0 for FrameSize.
	Size int
	// CPUs are the CPUs that a process under test may use. Empty stands for all.
	CPUs []int
	// Lab is the lab that scenario scion3 measures in.
	Lab *LabPath
}

// Candidate is a row that scenarios can measure.
type Candidate struct {
	// Name is stable: reports are compared by it.
	Name string
	// Device makes the device under test. It is nil for a row without one.
	Device func(o DeviceOptions) Device
	// scenarios lists the scenarios that measure the row.
	scenarios []string
	// SCION is set for rows that forward SCION packets, which cannot be as short as others.
	SCION bool
	// MainGroupOnly is set for rows that scenario veth measures only in its main group, unless they are named.
	MainGroupOnly bool
	// ByNameOnly is set for rows that are measured only if they are named.
	ByNameOnly bool
	// Exclusive is set for rows whose device is attached only during their own rounds.
	Exclusive bool
	// Paced is set for rows whose best rate has to be searched for, because they forward less when they are flooded.
	Paced bool
	// Note goes into each sample.
	Note string
}

// candidates are the rows of the scenarios in package scenario and of scenario cost, in the order of reports.
var candidates = []Candidate{
	{Name: "direct", scenarios: []string{"veth", "ndr", "latency"}},
	{Name: "bridge", scenarios: []string{"veth", "ndr", "latency"}, Device: func(DeviceOptions) Device { return &Bridge{} }},
	{Name: "forward", scenarios: []string{"veth"}, MainGroupOnly: true, Device: func(DeviceOptions) Device { return &Forward{} }},
	{Name: "redirect", scenarios: []string{"veth", "cost", "ndr", "latency"}, Device: func(DeviceOptions) Device { return &Redirect{} }},
	{Name: "rewrite", scenarios: []string{"veth", "cost"}, SCION: true, MainGroupOnly: true, Device: func(o DeviceOptions) Device {
		return &rewrite{traffic: o.traffic(true)}
	}},
	// culvert's rows are exclusive because it watches tracepoints that the packets of all devices pass.
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
	{Name: "culvert-general", scenarios: []string{"cost"}, SCION: true, Device: func(o DeviceOptions) Device {
		return &Culvert{Traffic: o.traffic(true), SkipMAC: true, General: true}
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

// floodedNote is the note of rows in a lab that are not paced. A veth receives on the CPU where a packet was first sent to it,
// and that packet may be the lab's own.
const floodedNote = "flooded with all that the generator can send; runs on its CPU, or on that where the lab's own packets arrive"

// traffic describes SCION packets of length o.Size. Cold packets each have a hop field of their own. Others share one.
func (o DeviceOptions) traffic(cold bool) SCIONTraffic {
	size := o.Size
	if size == 0 {
		size = FrameSize
	}
	return SCIONTraffic{Cold: cold, Size: size}
}

// CandidatesOf returns the rows of a scenario, in the order of reports.
func CandidatesOf(scenario string) []Candidate {
	return slices.DeleteFunc(slices.Clone(candidates), func(c Candidate) bool { return !slices.Contains(c.scenarios, scenario) })
}
