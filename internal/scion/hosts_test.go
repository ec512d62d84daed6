// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"culvert/internal/host/nexthop"
	"culvert/internal/scion/scionplane"
)

// fakeTracker lets a test report next hops.
type fakeTracker struct {
	reports map[netip.Addr]func(nexthop.NextHop)
	stopped map[netip.Addr]bool
}

func (f *fakeTracker) Track(addr, _ netip.Addr, report func(nexthop.NextHop)) func() {
	f.reports[addr] = report
	delete(f.stopped, addr)
	return func() { f.stopped[addr] = true }
}

func (f *fakeTracker) TrackLow(addr, from netip.Addr, report func(nexthop.NextHop)) func() {
	return f.Track(addr, from, report)
}

// fakeHosts is the fast path's table of hosts.
type fakeHosts map[netip.Addr]scionplane.NextHop

// fakePlane is the fast path. Tests say when it has used its hosts.
type fakePlane struct {
	fakeHosts
	used map[netip.Addr]time.Time
	// listed counts how often all hosts were asked for.
	listed int
}

func (f *fakePlane) Hosts() (map[netip.Addr]uint32, error) {
	f.listed++
	used := make(map[netip.Addr]uint32)
	for addr := range f.fakeHosts {
		used[addr] = scionplane.HostUsed(f.used[addr])
	}
	return used, nil
}

func (f *fakePlane) SetHost(addr netip.Addr, nh scionplane.NextHop) error {
	f.fakeHosts[addr] = nh
	return nil
}

func (f *fakePlane) DeleteHost(addr netip.Addr) error { delete(f.fakeHosts, addr); return nil }

func hostAt(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", n)) }

func newFakeTable() (*hostTable, *fakeTracker, fakeHosts) {
	tracker := &fakeTracker{reports: map[netip.Addr]func(nexthop.NextHop){}, stopped: map[netip.Addr]bool{}}
	plane := &fakePlane{fakeHosts: fakeHosts{}, used: map[netip.Addr]time.Time{}}
	return newHostTable(hostAt(1), tracker, plane, func(index int) bool { return index == 7 }), tracker, plane.fakeHosts
}

// use has the fast path send to hosts.
func use(table *hostTable, now time.Time, hosts ...netip.Addr) {
	for _, addr := range hosts {
		table.plane.(*fakePlane).used[addr] = now
	}
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
	if want := (scionplane.NextHop{IfIndex: 7, SrcMAC: [6]byte{3}, DstMAC: [6]byte{2}, MTU: 1500, LinearOnly: true}); plane[hostAt(2)] != want {
		t.Errorf("fast path has %+v, want %+v", plane[hostAt(2)], want)
	}
	// The route moves to a device without fast path, then to this host, then away.
	nh.IfIndex = 8
	for _, kernels := range []nexthop.NextHop{nh, {Kernel: true}} {
		tracker.reports[hostAt(2)](kernels)
		if hop, there := plane[hostAt(2)]; !there || hop != (scionplane.NextHop{}) {
			t.Errorf("%+v: fast path has %v, want a host that the kernel reaches", kernels, plane)
		}
	}
	tracker.reports[hostAt(2)](nexthop.NextHop{})
	if len(plane) != 0 {
		t.Errorf("fast path has %v, want nothing", plane)
	}
}

func TestHostsBounded(t *testing.T) {
	table, tracker, plane := newFakeTable()
	table.limit = 3
	now := time.Now()
	for n := 2; n <= 4; n++ {
		table.want(hostAt(n), now)
		tracker.reports[hostAt(n)](nexthop.NextHop{IfIndex: 7})
	}
	// The one that was asked for last is the one not used since.
	now = now.Add(hostBusy + 5*time.Second)
	use(table, now, hostAt(2), hostAt(3))
	table.want(hostAt(5), now)
	tracker.reports[hostAt(5)](nexthop.NextHop{IfIndex: 7})
	if _, there := plane[hostAt(4)]; there || !tracker.stopped[hostAt(4)] {
		t.Error("the host used least recently did not make room")
	}
	for _, n := range []int{2, 3, 5} {
		if _, there := plane[hostAt(n)]; !there {
			t.Errorf("host %d is gone, though in use or new", n)
		}
	}
	// A finding that was under way must not bring the dropped host back.
	tracker.reports[hostAt(4)](nexthop.NextHop{IfIndex: 7})
	if _, there := plane[hostAt(4)]; there {
		t.Error("a dropped host came back")
	}
	// Looking for room is work, and not done for each packet.
	plane2 := table.plane.(*fakePlane)
	before := plane2.listed
	for n := 6; n < 100; n++ {
		table.want(hostAt(n), now)
	}
	if plane2.listed != before {
		t.Errorf("all hosts were listed %d times more within a second", plane2.listed-before)
	}
	// All of them are in use: the one used least recently leaves.
	now = now.Add(5 * time.Second)
	use(table, now, hostAt(2), hostAt(5))
	use(table, now.Add(-3*time.Second), hostAt(3))
	table.want(hostAt(6), now)
	tracker.reports[hostAt(6)](nexthop.NextHop{IfIndex: 7})
	if _, there := plane[hostAt(3)]; there || len(plane) != 3 || table.counts.total != 3 {
		t.Errorf("fast path has %v, want the newcomer in the place of host 3", plane)
	}
}

// The clock goes back an hour: hosts used since then go on being in use, the others are old.
func TestAgeAfterAStepOfTheClock(t *testing.T) {
	now := time.Now()
	at := func(d time.Duration) uint32 { return age(scionplane.HostUsed(now.Add(d)), scionplane.HostUsed(now)) }
	busy := at(-hostBusy)
	for _, d := range []time.Duration{time.Hour, -time.Minute, -2 * time.Minute} {
		if at(d) <= busy {
			t.Errorf("host used at %v counts as in use", d)
		}
	}
	if at(0) > busy || at(time.Second) > busy || at(time.Hour) <= at(-2*time.Minute) {
		t.Errorf("ages %d, %d, %d", at(0), at(time.Second), at(time.Hour))
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
	plane[hostAt(2)] = scionplane.NextHop{IfIndex: 7}
	table.adopt(hostAt(2), time.Now())
	tracker.reports[hostAt(2)](nexthop.NextHop{})
	if len(plane) != 0 {
		t.Errorf("fast path has %v, want nothing", plane)
	}
}
