// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"

	"culvert/internal/host/netdev"
)

func TestLoads(t *testing.T) {
	even := &netdev.Queues{Receive: 4, RSS: []float64{25, 25, 25, 25}}
	uneven := &netdev.Queues{Receive: 4, RSS: []float64{100, 0, 0, 0}}
	gathered := &netdev.Queues{Receive: 2, RSS: []float64{50, 50}, Interrupts: []netdev.Interrupt{{IRQ: 38, CPUs: []int{0}}, {IRQ: 40, CPUs: []int{0}}}}
	one := map[int]uint64{0: 9900, 1: 20, 2: 0}
	for _, tt := range []struct {
		name         string
		load         Load
		check, finds string // "" for no finding
		command      string
		on           string
	}{
		{name: "nothing"},
		{name: "even", load: Load{CPUs: map[int]uint64{0: 5000, 1: 5000}, Interfaces: []InterfaceLoad{{Interface: "e0", Queues: even, Packets: map[int]uint64{0: 900, 1: 900, 2: 900}}}}},
		{name: "too few", load: Load{CPUs: map[int]uint64{0: 999}, Interfaces: []InterfaceLoad{{Interface: "e0", Queues: even, Packets: map[int]uint64{0: 999}}}}},
		{name: "one queue of a card that has one", load: Load{CPUs: one, Interfaces: []InterfaceLoad{{Interface: "e0", Queues: &netdev.Queues{Receive: 1}, Packets: one}}}},
		{"one queue", Load{CPUs: one, Interfaces: []InterfaceLoad{{Interface: "e0", Queues: even, Packets: one}}},
			"load", "queue 0 of 4 has 99 % of the packets: few flows", "[workers] in the file: cpus = \"0-3\"", "e0"},
		{"one queue by the table", Load{CPUs: one, Interfaces: []InterfaceLoad{{Interface: "e0", Queues: uneven, Packets: one}}},
			"load", "spreads hashes unevenly", "ethtool -X e0 equal 4", "e0"},
		{name: "one queue, and workers", load: Load{Workers: []int{0, 1}, CPUs: map[int]uint64{0: 5000, 1: 5000}, Enqueued: map[int]uint64{0: 5000},
			Interfaces: []InterfaceLoad{{Interface: "e0", Queues: even, Packets: one}}}},
		{"one CPU", Load{Router: "r", CPUs: one, Interfaces: []InterfaceLoad{{Interface: "e0", Queues: gathered, Packets: map[int]uint64{0: 5000, 1: 5000}}}},
			"load", "r: CPU 0 has 99 % of the packets, because it serves several queues", "echo 1 > /proc/irq/40/smp_affinity_list", ""},
		{"one flow, and workers", Load{Router: "r", Workers: []int{0, 1}, CPUs: one, Enqueued: map[int]uint64{1: 9900}}, "load", "one flow has most of them", "", ""},
		{"one worker", Load{Router: "r", Workers: []int{1}}, "workers", "r: one worker costs more than it brings", "cpus = \"0-3\"", ""},
		{"workers on CPUs that receive", Load{Router: "r", Workers: []int{0, 1}, CPUs: map[int]uint64{0: 5000, 1: 5000}, Enqueued: map[int]uint64{0: 4000, 1: 4000}},
			"workers", "r: 2 workers cost more than they bring: CPUs 0-1 receive already", "without [workers]", ""},
		{name: "more workers than receivers", load: Load{Workers: []int{0, 1, 2, 3}, CPUs: map[int]uint64{0: 5000, 1: 5000}, Enqueued: map[int]uint64{0: 4000, 1: 4000}}},
		{"tags", Load{Workers: []int{0, 1}, Interfaces: []InterfaceLoad{{Interface: "e0", Stays: "it takes VLAN tags off", Mend: "ethtool -K e0 rxvlan off"}}}, "workers", "it takes VLAN tags off", "ethtool -K e0 rxvlan off", "e0"},
	} {
		tt.load.Spreads = true
		got := checkLoads([]Load{tt.load}, []int{0, 1, 2, 3})
		switch {
		case tt.check == "" && len(got) > 0, tt.check != "" && len(got) != 1:
			t.Errorf("%s: %+v", tt.name, got)
		case tt.check == "":
		case got[0].Check != tt.check || !strings.Contains(got[0].Finding, tt.finds) || !strings.Contains(got[0].Command, tt.command) ||
			got[0].Command == "" != (tt.command == "") || got[0].Interface != tt.on || got[0].Status != Warn:
			t.Errorf("%s: %+v", tt.name, got[0])
		}
	}
}

// TestLoadsOfFewCPUs wants advice to name CPUs that there are, though there are more queues, or none if there is only one CPU.
func TestLoadsOfFewCPUs(t *testing.T) {
	one := map[int]uint64{0: 9900}
	hot := Load{CPUs: one, Interfaces: []InterfaceLoad{{Interface: "e0", Queues: &netdev.Queues{Receive: 4}, Packets: one}}}
	busy := &netdev.Queues{Receive: 3, Interrupts: []netdev.Interrupt{{IRQ: 38, CPUs: []int{0}}, {IRQ: 40, CPUs: []int{0}}, {IRQ: 42, CPUs: []int{2}}}}
	gathered := Load{Router: "r", CPUs: one, Interfaces: []InterfaceLoad{{Interface: "e0", Queues: busy, Packets: map[int]uint64{0: 5000, 1: 5000, 2: 5000}}}}
	for _, tt := range []struct {
		load    Load
		online  []int
		command string // "" for no finding
	}{
		{hot, []int{0, 2}, `culvert reload, with [workers] in the file: cpus = "0,2"`},
		{hot, []int{0}, ""},
		{gathered, []int{0, 2}, "echo 2 > /proc/irq/40/smp_affinity_list"},
		{gathered, []int{0, 2, 5}, "echo 5 > /proc/irq/40/smp_affinity_list"},
		{gathered, []int{0}, ""},
	} {
		tt.load.Spreads = true
		got := checkLoads([]Load{tt.load}, tt.online)
		if len(got) > 1 || len(got) == 1 != (tt.command != "") || len(got) == 1 && got[0].Command != tt.command {
			t.Errorf("CPUs %v: %+v, want %q", tt.online, got, tt.command)
		}
	}
}

// TestLoadsWorkersDoNotHelp has loads for which workers would bring nothing, or have to be brought into force in another way than by a reload.
func TestLoadsWorkersDoNotHelp(t *testing.T) {
	queue := &netdev.Queues{Receive: 2}
	on := func(cpu int) map[int]uint64 { return map[int]uint64{cpu: 9900} }
	hot := func(cpu int, stays string) Load {
		return Load{Router: "r", Spreads: true, CPUs: on(cpu), Interfaces: []InterfaceLoad{
			{Interface: "e0", Stays: stays, Mend: "culvert reload, without [workers] in the file", Queues: queue, Packets: on(0)},
		}}
	}
	with := func(l Load, change func(*Load)) Load { change(&l); return l }
	filter := func(l *Load) { l.Spreads = false }
	workers := func(l *Load) { l.Workers = []int{0, 1} }
	unattended := func(l *Load) {
		l.Unattended, l.Interfaces[0].Mend = true, "culvert attach, without [workers] in the file"
	}
	type line struct{ check, finds, command string }
	for name, tt := range map[string]struct {
		load Load
		want []line
	}{
		"a process":                {hot(0, ""), []line{{"load", "Workers spread", `culvert reload, with [workers] in the file: cpus = "0-1"`}}},
		"no process":               {with(hot(0, ""), unattended), []line{{"load", "Workers spread", `culvert attach, with [workers] in the file: cpus = "0-1"`}}},
		"another CPU receives":     {hot(3, ""), []line{{"load", "Workers spread", `culvert reload, with [workers] in the file: cpus = "0,3"`}}},
		"a filter alone":           {with(hot(0, ""), filter), []line{{"load", "Workers get nothing of a filter alone", ""}}},
		"a filter with workers":    {with(with(hot(1, ""), filter), workers), []line{{"load", "Workers get nothing of a filter alone", ""}}},
		"a filter with one worker": {Load{Workers: []int{1}}, nil},
		"they would stay":          {hot(0, "it is a bond"), []line{{"load", "Workers get none of its packets: it is a bond", ""}}},
		"they stay, no process": {with(with(hot(0, "in generic mode"), workers), unattended), []line{
			{"workers", "in generic mode", "culvert attach, without [workers] in the file"}, {"load", "Workers get none of its packets: in generic mode", ""},
		}},
	} {
		got := checkLoads([]Load{tt.load}, []int{0, 1, 2, 3})
		same := len(got) == len(tt.want)
		for n := range min(len(got), len(tt.want)) {
			same = same && got[n].Check == tt.want[n].check && strings.Contains(got[n].Finding, tt.want[n].finds) && got[n].Command == tt.want[n].command
		}
		if !same {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}
