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

// strayPorts is a fast path that has dropped datagrams of links because of their interface.
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

// TestStrayDropsAreLogged checks that the log reports datagrams by the wrong interface, once a minute for each interface,
// and not those that an adopted fast path dropped before.
func TestStrayDropsAreLogged(t *testing.T) {
	ports := &strayPorts{dropped: [2]uint64{5, 0}}
	w := newPortWatch(ports)
	var lines []string
	w.info = func(_ string, fields ...any) { lines = append(lines, strings.TrimSpace(fmt.Sprintln(fields...))) }
	start := time.Now()
	for _, step := range []struct {
		name    string
		after   time.Duration
		dropped [2]uint64 // since the last step, at eth0 and eth1
		want    []string
	}{
		{"adopted", 0, [2]uint64{0, 0}, nil},
		{"first drop", time.Second, [2]uint64{1, 0}, []string{"interface eth0 packets 1"}},
		{"within eth0's minute", 2 * time.Second, [2]uint64{3, 4}, []string{"interface eth1 packets 4"}},
		{"within eth1's minute", 61 * time.Second, [2]uint64{3, 4}, []string{"interface eth0 packets 6"}},
		{"after eth1's minute", 62 * time.Second, [2]uint64{0, 0}, []string{"interface eth1 packets 4"}},
	} {
		lines = nil
		for i, n := range step.dropped {
			ports.dropped[i] += n
		}
		if w.look(start.Add(step.after)); !slices.Equal(lines, step.want) {
			t.Errorf("%s: logged %q, want %q", step.name, lines, step.want)
		}
	}
	if newPortWatch(nil) != nil {
		t.Error("a watch without a fast path")
	}
}

// TestSocketDropsAreLogged checks that the log reports all drops at sockets by link and reason, once a minute for each.
func TestSocketDropsAreLogged(t *testing.T) {
	links := []scionplane.Link{{Name: "internal"}, {Name: "7"}}
	var lines []string
	info := func(message string, fields ...any) {
		lines = append(lines, strings.TrimSpace(fmt.Sprintln(append([]any{message}, fields...)...)))
	}
	var w socketWatch
	start := time.Now()
	for _, step := range []struct {
		name  string
		after time.Duration
		drops []scionplane.SocketDrops // by link
		want  []string
	}{
		{"first drops", 0, []scionplane.SocketDrops{{Service: 2}, {Interface: 1, BFD: 3}}, []string{
			"Datagrams dropped at a socket: a service address of this AS as source link internal packets 2",
			"Datagrams dropped at a socket: they came by another interface than the link's link 7 packets 1",
			"BFD packets dropped at a socket: their TTL is below bfd_min_ttl link 7 packets 3",
		}},
		{"within the minute", time.Second, []scionplane.SocketDrops{{Service: 2}, {Interface: 1, BFD: 5}}, nil},
		{"after a minute", dropsQuiet, []scionplane.SocketDrops{{Service: 2}, {Interface: 1, BFD: 5}}, []string{
			"BFD packets dropped at a socket: their TTL is below bfd_min_ttl link 7 packets 2",
		}},
	} {
		lines = nil
		if w.look(links, step.drops, start.Add(step.after), info); !slices.Equal(lines, step.want) {
			t.Errorf("%s: logged %q, want %q", step.name, lines, step.want)
		}
	}
}
