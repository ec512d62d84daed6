// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"

	"culvert/internal/host/cpus"
	"culvert/internal/host/netdev"
)

// Load is what a running data plane has done while doctor was looking.
type Load struct {
	// Router is the name of the data plane.
	Router string
	// Workers are the CPUs that packets are spread over.
	Workers []int
	// CPUs has the packets on which each CPU has given a verdict, Enqueued those that it has given to workers.
	CPUs, Enqueued map[int]uint64
	// Spreads tells whether it has a stage whose packets workers get: not so a filter alone.
	Spreads bool
	// Unattended tells that 'culvert attach' made it, so that no process takes a reload.
	Unattended bool
	Interfaces []InterfaceLoad
}

// InterfaceLoad is the part of one interface.
type InterfaceLoad struct {
	Interface string
	// Bond is the bond of which the interface is a member, "" for none. The bond has an entry of its own, without queues.
	Bond string
	// Stays says why its packets stay on the CPU that receives them though there are workers, or would if there were any, "" if they do
	// not. Mend is the command.
	Stays, Mend string
	// Queues are its receive queues, nil if they are not known, and Packets what each has got, by queue.
	Queues  *netdev.Queues
	Packets map[int]uint64
}

const (
	// loadEnough is how many packets make a load.
	loadEnough = 1000
	// loadMost is the share of one queue or CPU, in percent, above which the others are too idle.
	loadMost = 80
	// loadSome is the share in percent above which a CPU counts as one that receives.
	loadSome = 5
)

// most returns the one with the largest share and this share in percent. ok is false without a load.
func most(packets map[int]uint64) (one int, percent uint64, ok bool) {
	var sum uint64
	for _, n := range slices.Sorted(maps.Keys(packets)) {
		sum += packets[n]
		if _, known := packets[one]; !known || packets[n] > packets[one] {
			one = n
		}
	}
	if sum < loadEnough {
		return 0, 0, false
	}
	return one, packets[one] * 100 / sum, true
}

// checkLoads warns of queues and CPUs that have nearly all of the load, and of workers that cost more than they bring. online are the CPUs
// that there are.
func checkLoads(loads []Load, online []int) (found []Finding) {
	for _, l := range loads {
		found = append(found, l.stays()...)
		hot := l.queues(online)
		found = append(found, hot...)
		if f := l.worth(online); f != nil {
			found = append(found, *f)
		} else if f := l.cpu(online); f != nil && hot == nil {
			found = append(found, *f)
		}
	}
	return found
}

// stays finds interfaces whose packets workers do not get.
func (l Load) stays() (found []Finding) {
	if len(l.Workers) == 0 {
		return nil
	}
	for _, i := range l.Interfaces {
		if i.Stays != "" && i.Bond == "" {
			found = append(found, Finding{
				Status: Warn, Check: "workers", Interface: i.Interface, Command: i.Mend,
				Finding: "workers get none of its packets: " + i.Stays,
			})
		}
	}
	return found
}

// again is the command that brings a changed file into force.
func (l Load) again() string {
	if l.Unattended {
		return "culvert attach"
	}
	return "culvert reload"
}

// spreads tells whether workers, if there are any, get packets.
func (l Load) spreads() bool {
	return l.Spreads && (len(l.Interfaces) == 0 || slices.ContainsFunc(l.Interfaces, func(i InterfaceLoad) bool { return i.Stays == "" }))
}

// workersFor returns n of the CPUs that there are, among them the one that receives.
func (l Load) workersFor(n int, online []int) []int {
	var list []int
	if receives, _, ok := most(l.CPUs); ok && slices.Contains(online, receives) {
		list = append(list, receives)
	}
	for _, cpu := range online {
		if len(list) < n && !slices.Contains(list, cpu) {
			list = append(list, cpu)
		}
	}
	slices.Sort(list)
	return list
}

// queues finds queues that have nearly all packets of an interface with several. With one CPU it makes no difference.
func (l Load) queues(online []int) (found []Finding) {
	if len(online) < 2 {
		return nil
	}
	for _, i := range l.Interfaces {
		if i.Queues == nil || i.Queues.Receive < 2 {
			continue
		}
		one, percent, ok := most(i.Packets)
		if !ok || percent <= loadMost {
			continue
		}
		f := Finding{Status: Warn, Check: "load", Interface: i.Interface}
		f.Finding = fmt.Sprintf("queue %d of %d has %d %% of the packets", one, i.Queues.Receive, percent)
		switch rss := i.Queues.RSS; {
		case len(rss) > 1 && (slices.Max(rss) > loadMost || slices.Min(rss) == 0):
			f.Finding += ": the card's table spreads hashes unevenly"
			f.Command = fmt.Sprintf("ethtool -X %s equal %d", i.Interface, i.Queues.Receive)
		case len(l.Workers) > 0 && l.Spreads && i.Stays == "":
			continue // they spread what the card does not, or cpu says that they do not
		case !l.Spreads:
			f.Finding += ": few flows, or flows that the card cannot tell apart. Workers get nothing of a filter alone"
		case i.Stays != "":
			f.Finding += ": few flows, or flows that the card cannot tell apart. Workers get none of its packets: " + i.Stays
		default:
			f.Finding += ": few flows, or flows that the card cannot tell apart. Workers spread what the card does not"
			f.Command = l.again() + ", with [workers] in the file: cpus = \"" + cpus.Format(l.workersFor(i.Queues.Receive, online)) + "\""
		}
		found = append(found, f)
	}
	return found
}

// cpu finds a CPU that has nearly all packets though others could have some.
func (l Load) cpu(online []int) *Finding {
	one, percent, ok := most(l.CPUs)
	if !ok || percent <= loadMost || len(online) < 2 {
		return nil
	}
	f := &Finding{Status: Warn, Check: "load", Finding: fmt.Sprintf("%s: CPU %d has %d %% of the packets", l.Router, one, percent)}
	if len(l.Workers) > 1 && l.spreads() {
		f.Finding += ": workers spread by flow, and one flow has most of them"
		return f
	}
	irqs, spare := l.interruptsOn(one, online)
	switch {
	case len(irqs) > 1:
		f.Finding += ", because it serves several queues"
		f.Command = fmt.Sprintf("echo %d > /proc/irq/%d/smp_affinity_list", spare, irqs[1])
	case l.severalQueues():
		f.Finding += ", though there are several queues"
	default:
		return nil // check queues has it
	}
	return f
}

func (l Load) severalQueues() bool {
	return slices.ContainsFunc(l.Interfaces, func(i InterfaceLoad) bool { return i.Queues != nil && i.Queues.Receive > 1 })
}

// interruptsOn returns the interrupts of receive queues that one CPU alone serves, and another CPU, that of the online ones that serves
// the fewest.
func (l Load) interruptsOn(cpu int, online []int) (irqs []int, spare int) {
	serves := make(map[int]int)
	for _, i := range l.Interfaces {
		if i.Queues == nil {
			continue
		}
		for _, irq := range i.Queues.Interrupts {
			if slices.Equal(irq.CPUs, []int{cpu}) {
				irqs = append(irqs, irq.IRQ)
			}
			for _, c := range irq.CPUs {
				serves[c]++
			}
		}
	}
	spare = -1
	for _, c := range online {
		if c != cpu && (spare < 0 || serves[c] < serves[spare]) {
			spare = c
		}
	}
	return irqs, spare
}

// worth finds workers that cost more than they bring.
func (l Load) worth(online []int) *Finding {
	f := &Finding{Status: Warn, Check: "workers"}
	receivers := l.receivers()
	switch {
	case len(l.Workers) == 0, !l.spreads():
		return nil // what keeps packets from workers has findings of its own
	case len(l.Workers) == 1 && len(online) > 1:
		f.Finding = fmt.Sprintf("%s: one worker costs more than it brings: CPU %d gets every packet from the queue of another CPU, or is that CPU itself",
			l.Router, l.Workers[0])
		f.Command = fmt.Sprintf("%s, without [workers] in the file, or with more: cpus = \"%s\"", l.again(), cpus.Format(online))
	case len(receivers) > 1 && len(receivers) >= len(l.Workers):
		f.Finding = fmt.Sprintf("%s: %d workers cost more than they bring: CPUs %s receive already, each its part",
			l.Router, len(l.Workers), cpus.Format(receivers))
		f.Command = l.again() + ", without [workers] in the file"
	default:
		return nil
	}
	return f
}

// receivers returns the CPUs that receive: those that give a part of all packets to workers.
func (l Load) receivers() (receive []int) {
	var sum uint64
	for _, n := range l.Enqueued {
		sum += n
	}
	if sum < loadEnough {
		return nil
	}
	for _, cpu := range slices.Sorted(maps.Keys(l.Enqueued)) {
		if l.Enqueued[cpu]*100 > sum*loadSome {
			receive = append(receive, cpu)
		}
	}
	return receive
}
