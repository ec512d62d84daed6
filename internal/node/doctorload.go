// SPDX-License-Identifier: Apache-2.0

package node

import (
	"culvert/internal/datapath"
	"culvert/internal/doctor"
	"culvert/internal/host/netdev"
	"culvert/internal/stats"
)

// loadBusy is how many packets a data plane must have had for doctor to look at its load.
const loadBusy = 10_000

// loadSource is the data plane as loadOf sees it.
type loadSource interface {
	stats.PortSource
	Name() string
	Workers() datapath.Workers
	Enqueued() ([]uint64, error)
	Spread() map[string]bool
	Generic() bool
	Unattended() bool
	AttachedNow() []string
	Bonds() map[string]*netdev.Bond
}

// loadOf reads what a data plane does while wait lasts. It does not wait for one that has had few packets.
func loadOf(inst loadSource, wait func()) doctor.Load {
	l := doctor.Load{Router: inst.Name(), Workers: inst.Workers().CPUs, Unattended: inst.Unattended()}
	bonds := inst.Bonds()
	for _, name := range inst.AttachedNow() {
		spread, known := inst.Spread()[name]
		load := doctor.InterfaceLoad{Interface: name, Queues: netdev.ReadQueues(name)}
		if known && !spread || len(l.Workers) == 0 && datapath.WouldStay(name, inst.Generic()) {
			load.Stays, load.Mend = datapath.WhyStays(name, inst.Generic(), l.Unattended)
		}
		l.Interfaces = append(l.Interfaces, load)
		if bond := bonds[name]; bond != nil {
			for _, m := range bond.Members {
				member := load
				member.Interface, member.Bond, member.Queues = m.Name, name, netdev.ReadQueues(m.Name)
				l.Interfaces = append(l.Interfaces, member)
			}
		}
	}
	cpus, enqueued := work(inst)
	var sum uint64
	for _, n := range cpus {
		sum += n
	}
	if sum < loadBusy {
		return l
	}
	before := make([]map[int]uint64, len(l.Interfaces))
	for n, i := range l.Interfaces {
		before[n] = netdev.QueuePackets(i.Interface)
	}
	wait()
	cpusAfter, enqueuedAfter := work(inst)
	l.CPUs, l.Enqueued = since(cpus, cpusAfter), since(enqueued, enqueuedAfter)
	for n := range l.Interfaces {
		l.Interfaces[n].Packets = since(before[n], netdev.QueuePackets(l.Interfaces[n].Interface))
	}
	return l
}

// work returns the packets that each CPU has given a verdict on, and that it has given to workers. An error has a finding of another check.
func work(inst loadSource) (cpus, enqueued map[int]uint64) {
	cpus, enqueued = make(map[int]uint64), make(map[int]uint64)
	ports, _ := inst.Ports()
	for _, p := range ports {
		for _, c := range p.CPUs {
			cpus[c.CPU] += c.Packets
		}
	}
	by, _ := inst.Enqueued()
	for cpu, n := range by {
		enqueued[cpu] = n
	}
	return cpus, enqueued
}

// since returns what has been added to counters that only grow.
func since(before, after map[int]uint64) map[int]uint64 {
	grown := make(map[int]uint64)
	for n, v := range after {
		if v > before[n] {
			grown[n] = v - before[n]
		}
	}
	return grown
}
