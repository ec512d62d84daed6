// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/scion/scionplane"
	"culvert/internal/stats"
)

// strayPorts is a fast path that has dropped datagrams of links.
type strayPorts struct {
	printingPlane
	dropped [2]uint64 // at eth0, eth1
}

func (p *strayPorts) Ports() (all []stats.Port, err error) {
	for i, n := range p.dropped {
		all = append(all, stats.Port{Interface: fmt.Sprint("eth", i), Reasons: []stats.Reason{
			{Name: "scion-interface", Verdict: "drop", Packets: n}, {Name: "scion-bfd", Verdict: "drop", Packets: 10 * n},
			{Name: "scion-interface", Verdict: "punt", Packets: 99}}})
	}
	return all, nil
}

// The log is told of datagrams that came by the wrong interface, once a minute for each, and not of an adopted
// fast path's past.
func TestStrayDropsAreLogged(t *testing.T) {
	ports := &strayPorts{dropped: [2]uint64{5, 0}}
	w := newPortWatch(ports)
	var lines []string
	w.info = func(_ string, fields ...any) { lines = append(lines, strings.TrimSpace(fmt.Sprintln(fields...))) }
	start := time.Now()
	for _, step := range []struct {
		after   time.Duration
		dropped [2]uint64
		want    []string
	}{
		{0, [2]uint64{0, 0}, nil},
		{time.Second, [2]uint64{1, 0}, []string{"interface eth0 packets 1"}},
		{2 * time.Second, [2]uint64{3, 4}, []string{"interface eth1 packets 4"}},
		{61 * time.Second, [2]uint64{3, 4}, []string{"interface eth0 packets 6"}},
		{62 * time.Second, [2]uint64{0, 0}, []string{"interface eth1 packets 4"}},
	} {
		lines = nil
		for i, n := range step.dropped {
			ports.dropped[i] += n
		}
		if w.look(start.Add(step.after)); !slices.Equal(lines, step.want) {
			t.Errorf("after %v: %q, want %q", step.after, lines, step.want)
		}
	}
	if newPortWatch(nil) != nil {
		t.Error("a watch without a fast path")
	}
}

// The log is told of all that the sockets drop, by link and reason.
func TestSocketDropsAreLogged(t *testing.T) {
	links := []scionplane.Link{{Name: "internal"}, {Name: "7"}}
	var lines []string
	info := func(message string, fields ...any) {
		lines = append(lines, strings.TrimSpace(fmt.Sprintln(append([]any{message}, fields...)...)))
	}
	var w socketWatch
	start := time.Now()
	drops := []scionplane.SocketDrops{{Service: 2}, {Interface: 1, BFD: 3}}
	w.look(links, drops, start, info)
	want := []string{
		"Datagrams dropped at a socket: a service address of this AS as source link internal packets 2",
		"Datagrams dropped at a socket: they came by another interface than the link's link 7 packets 1",
		"BFD packets dropped at a socket: their TTL is below bfd_min_ttl link 7 packets 3",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("said %q, want %q", lines, want)
	}
	lines, drops[1].BFD = nil, 5
	w.look(links, drops, start.Add(time.Second), info)
	if len(lines) != 0 {
		t.Errorf("said %q within the minute", lines)
	}
	w.look(links, drops, start.Add(dropsQuiet), info)
	if want := []string{"BFD packets dropped at a socket: their TTL is below bfd_min_ttl link 7 packets 2"}; !slices.Equal(lines, want) {
		t.Errorf("said %q after a minute, want %q", lines, want)
	}
}
