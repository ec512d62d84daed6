// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"maps"
	"slices"

	"culvert/internal/bpfobj"
	"culvert/internal/stats"
)

// adoptReasons copies the counters of an old data plane that numbers its reasons differently, by the names of the reasons.
// What the old programs count from now on is lost.
func (i *Instance) adoptReasons(old *Instance, l *Loading) error {
	if l.Reused(bpfobj.PipelineMapCounters) || len(old.meta.Reasons) == 0 {
		return nil
	}
	names := reasonNames()
	for _, slot := range old.meta.Ports {
		for n := range 2 * len(old.meta.Reasons) {
			name := old.meta.Reasons[n%len(old.meta.Reasons)]
			now := slices.Index(names, name)
			if name == "" || now < 0 {
				continue
			}
			var values []bpfobj.PipelineCounter
			if err := old.maps[bpfobj.PipelineMapCounters].Lookup(uint32(slot*2*len(old.meta.Reasons)+n), &values); err != nil {
				return fmt.Errorf("copying the counters of %s: %w", name, err)
			}
			if n >= len(old.meta.Reasons) {
				now += bpfobj.ReasonCount
			}
			if err := i.maps[bpfobj.PipelineMapCounters].Put(uint32(slot*2*bpfobj.ReasonCount+now), values); err != nil {
				return fmt.Errorf("copying the counters of %s: %w", name, err)
			}
		}
	}
	return nil
}

// SameReasons returns an error if the data plane numbers its reasons differently than this program, which would take its
// counters for those of other reasons.
func (i *Instance) SameReasons() error {
	if slices.Equal(i.meta.Reasons, reasonNames()) {
		return nil
	}
	return fmt.Errorf("%s runs programs of another version, whose reasons have other numbers: "+
		"start or attach it again with this one", i.Name())
}

// Ports reads the counters of all interfaces that were ever attached, sorted by name. Reasons without packets are left out.
func (i *Instance) Ports() ([]stats.Port, error) {
	if err := i.SameReasons(); err != nil {
		return nil, err
	}
	attached := i.Attached()
	var all []stats.Port
	for _, name := range slices.Sorted(maps.Keys(i.meta.Ports)) {
		p := stats.Port{
			Interface: name,
			Attached:  slices.Contains(attached, name),
			Reasons:   []stats.Reason{},
		}
		slot := i.meta.Ports[name]
		var cpus cpuPackets
		for n := range 2 * bpfobj.ReasonCount {
			r := Reasons()[n%bpfobj.ReasonCount]
			if r.Name == "" {
				continue
			}
			c, err := i.counter(slot*2*bpfobj.ReasonCount+n, &cpus)
			if err != nil {
				return nil, err
			}
			if c.Packets == 0 {
				continue
			}
			p.Reasons = append(p.Reasons, stats.Reason{
				Name:    r.Name,
				Stage:   r.Stage,
				Verdict: string(r.Verdict),
				Limited: n >= bpfobj.ReasonCount,
				Text:    r.Text,
				Packets: c.Packets,
				Bytes:   c.Bytes,
			})
		}
		losses, err := i.losses(slot)
		if err != nil {
			return nil, err
		}
		p.Losses, p.CPUs = losses, cpus.used()
		all = append(all, p)
	}
	return all, nil
}

// counter returns the sum of a counter over all CPUs, and adds it to what each of them has counted.
func (i *Instance) counter(index int, cpus *cpuPackets) (sum bpfobj.PipelineCounter, err error) {
	var values []bpfobj.PipelineCounter
	if err := i.maps[bpfobj.PipelineMapCounters].Lookup(uint32(index), &values); err != nil {
		return sum, fmt.Errorf("reading counter %d of %s: %w", index, i.Name(), err)
	}
	for cpu, v := range values {
		sum.Packets += v.Packets
		sum.Bytes += v.Bytes
		if v.Packets > 0 {
			cpus.add(cpu, v)
		}
	}
	return sum, nil
}

// cpuPackets has what each CPU has counted. Its index is the CPU.
type cpuPackets []stats.CPUPackets

func (c *cpuPackets) add(cpu int, v bpfobj.PipelineCounter) {
	for len(*c) <= cpu {
		*c = append(*c, stats.CPUPackets{CPU: len(*c)})
	}
	(*c)[cpu].Packets += v.Packets
	(*c)[cpu].Bytes += v.Bytes
}

// used returns the CPUs that have counted anything.
func (c cpuPackets) used() (used []stats.CPUPackets) {
	for _, n := range c {
		if n.Packets > 0 {
			used = append(used, n)
		}
	}
	return used
}
