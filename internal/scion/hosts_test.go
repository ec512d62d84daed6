// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/nexthop"
)

// fakeTracker lets a test report next hops.
type fakeTracker struct {
	reports map[netip.Addr]func(nexthop.NextHop)
	stopped map[netip.Addr]bool
}

func (f *fakeTracker) Track(addr, _ netip.Addr, report func(nexthop.NextHop)) func() {
	f.reports[addr] = report
	return func() { f.stopped[addr] = true }
}

// fakeHosts is the fast path's table of hosts.
type fakeHosts map[netip.Addr]datapath.NextHop

func (f fakeHosts) SetHost(addr netip.Addr, nh datapath.NextHop) error { f[addr] = nh; return nil }

func (f fakeHosts) DeleteHost(addr netip.Addr) error { delete(f, addr); return nil }

func hostAt(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", n)) }

func newFakeTable() (*hostTable, *fakeTracker, fakeHosts) {
	tracker := &fakeTracker{reports: map[netip.Addr]func(nexthop.NextHop){}, stopped: map[netip.Addr]bool{}}
	plane := fakeHosts{}
	return newHostTable(hostAt(1), tracker, plane, func(index int) bool { return index == 7 }), tracker, plane
}

func TestHostFollowed(t *testing.T) {
	table, tracker, plane := newFakeTable()
	now := time.Now()
	table.want(hostAt(2), now)
	table.want(netip.MustParseAddr("fd00::2"), now)
	if len(tracker.reports) != 1 {
		t.Fatalf("%d hosts tracked, want 1: the internal link is IPv4", len(tracker.reports))
	}
	nh := nexthop.NextHop{IfIndex: 7, SrcMAC: [6]byte{3}, DstMAC: [6]byte{2}, MTU: 1500, LinearOnly: true}
	tracker.reports[hostAt(2)](nh)
	if want := (datapath.NextHop{IfIndex: 7, SrcMAC: [6]byte{3}, DstMAC: [6]byte{2}, MTU: 1500, LinearOnly: true}); plane[hostAt(2)] != want {
		t.Errorf("fast path has %+v, want %+v", plane[hostAt(2)], want)
	}
	// The route moves to a device without fast path.
	nh.IfIndex = 8
	tracker.reports[hostAt(2)](nh)
	if len(plane) != 0 {
		t.Errorf("fast path has %v, want nothing", plane)
	}
}

func TestHostsBounded(t *testing.T) {
	table, tracker, plane := newFakeTable()
	table.limit = 2
	now := time.Now()
	for n := 2; n <= 3; n++ {
		table.want(hostAt(n), now)
		tracker.reports[hostAt(n)](nexthop.NextHop{IfIndex: 7})
	}
	table.want(hostAt(2), now)
	table.want(hostAt(4), now)
	if _, there := plane[hostAt(3)]; there || !tracker.stopped[hostAt(3)] {
		t.Error("the host wanted least recently did not make room")
	}
	if _, there := plane[hostAt(2)]; !there {
		t.Error("a host wanted since has made room")
	}
	// A finding that was under way must not bring the dropped host back.
	tracker.reports[hostAt(3)](nexthop.NextHop{IfIndex: 7})
	if _, there := plane[hostAt(3)]; there {
		t.Error("a dropped host came back")
	}
}

func TestUnresolvedHostsDropped(t *testing.T) {
	table, tracker, plane := newFakeTable()
	start := time.Now()
	for n := 2; n <= 4; n++ {
		table.want(hostAt(n), start)
	}
	tracker.reports[hostAt(2)](nexthop.NextHop{IfIndex: 7})
	table.sweep(start.Add(unresolvedIdle))
	if len(table.hosts) != 3 {
		t.Errorf("%d hosts, want 3: it is too early to drop one", len(table.hosts))
	}
	table.want(hostAt(3), start.Add(1))
	table.sweep(start.Add(unresolvedIdle + 1))
	if len(table.hosts) != 2 || !tracker.stopped[hostAt(4)] {
		t.Error("the unresolved host was not dropped, or another was")
	}
	table.sweep(start.Add(24 * time.Hour))
	if _, there := plane[hostAt(2)]; !there || len(table.hosts) != 1 {
		t.Error("a resolved host was dropped, or an unresolved one was not")
	}
}

func TestAdoptedHostThatIsGone(t *testing.T) {
	table, tracker, plane := newFakeTable()
	plane[hostAt(2)] = datapath.NextHop{IfIndex: 7}
	table.adopt(hostAt(2), time.Now())
	tracker.reports[hostAt(2)](nexthop.NextHop{})
	if len(plane) != 0 {
		t.Errorf("fast path has %v, want nothing", plane)
	}
}
