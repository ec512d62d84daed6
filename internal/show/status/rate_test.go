// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"testing"
	"time"

	"culvert/internal/stats"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func port(name string, losses uint64, reasons ...stats.Reason) Interface {
	i := Interface{Port: stats.Port{
		Interface: name, Attached: true, Reasons: reasons, Losses: map[string]uint64{"redirect": losses, "transmit": 0},
	}}
	i.Packets, i.Bytes = i.Total()
	return i
}

func reason(verdict, name string, packets uint64) stats.Reason {
	return stats.Reason{Verdict: verdict, Name: name, Packets: packets, Bytes: 100 * packets}
}

func limited(name string, packets uint64) stats.Reason {
	r := reason("punt", name, packets)
	r.Limited = true
	return r
}

func at(seconds int, routers ...Router) sample {
	return sample{at: epoch.Add(time.Duration(seconds) * time.Second), routers: routers}
}

// rowText returns the rows of a flow as text, in the order in which they are shown.
func rowText(f flow) (s []string) {
	for _, w := range f.rows {
		s = append(s, fmt.Sprintf("%s %s %d +%d %.1f/s %.0fB/s", w.verdict, w.name, w.packets, w.delta, w.packetRate, w.byteRate))
	}
	return s
}

func TestFlows(t *testing.T) {
	before := at(0, Router{ID: "br1", NetNS: 1, Interfaces: []Interface{
		port("eth1", 5, reason("fwd", "out", 1000), reason("punt", "bfd", 50), limited("mac", 1), reason("pass", "other", 7)),
	}})
	now := at(2,
		Router{ID: "br1", NetNS: 1, Interfaces: []Interface{
			port("eth1", 9, reason("fwd", "out", 3000), reason("fwd", "in", 10), reason("punt", "mac", 8),
				reason("punt", "bfd", 50), limited("mac", 5), reason("pass", "other", 8), reason("drop", "path", 2)),
		}},
		Router{ID: "br1", NetNS: 2, Interfaces: []Interface{port("eth1", 0, reason("fwd", "out", 100))}},
	)
	all := flows(before, now)
	if len(all) != 2 {
		t.Fatalf("%d flows", len(all))
	}
	want := []string{
		"fwd out 3000 +2000 1000.0/s 100000B/s",
		"fwd in 10 +10 5.0/s 500B/s",
		"punt mac 8 +8 4.0/s 400B/s",
		"lost redirect 9 +4 2.0/s 0B/s",
		"limited mac 5 +4 2.0/s 200B/s",
		"drop path 2 +2 1.0/s 100B/s",
		"pass other 8 +1 0.5/s 50B/s",
		"punt bfd 50 +0 0.0/s 0B/s",
	}
	got := rowText(all[0])
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
	f := all[0]
	if f.forwarded != 1005 || f.slow != 4 || f.kernel != 0.5 || f.dropped != 3 || f.lost != 2 || f.bits != 8*101250 ||
		f.received != f.forwarded+f.slow+f.kernel+f.dropped {
		t.Errorf("sums %+v", f)
	}
	// The same name in another network namespace is another router, for which there is no earlier sample.
	if got := rowText(all[1]); len(got) != 1 || got[0] != "fwd out 100 +0 0.0/s 0B/s" {
		t.Errorf("the new router: %q", got)
	}
}

// TestCountersRestart has a data plane that is detached and attached again between two samples.
func TestCountersRestart(t *testing.T) {
	before := at(0, Router{ID: "br1", Interfaces: []Interface{port("eth1", 9, reason("fwd", "out", 1000))}})
	now := at(1, Router{ID: "br1", Interfaces: []Interface{port("eth1", 0, reason("fwd", "out", 30))}})
	f := flows(before, now)[0]
	if got := rowText(f); len(got) != 1 || got[0] != "fwd out 30 +30 30.0/s 3000B/s" {
		t.Errorf("%q", got)
	}
}
