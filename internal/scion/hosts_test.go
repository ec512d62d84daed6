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

// fakeTracker is a tracker whose next hops a test reports.
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

// fakeHosts are the hosts in the fast path.
type fakeHosts map[netip.Addr]scionplane.NextHop

// fakePlane is a fast path.
type fakePlane struct {
	fakeHosts
	// used is when each host was last sent to. Tests set it.
	used map[netip.Addr]time.Time
	// listed counts the calls of Hosts.
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

// newFakeTable returns the table of a router at hostAt(1), whose fast path is attached to device 7.
func newFakeTable() (*hostTable, *fakeTracker, fakeHosts) {
	tracker := &fakeTracker{reports: map[netip.Addr]func(nexthop.NextHop){}, stopped: map[netip.Addr]bool{}}
	plane := &fakePlane{fakeHosts: fakeHosts{}, used: map[netip.Addr]time.Time{}}
	return newHostTable(hostAt(1), tracker, plane, func(index int) bool { return index == 7 }), tracker, plane.fakeHosts
}

// use notes that the fast path has sent to hosts.
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
	elsewhere := nh
	elsewhere.IfIndex = 8
	for _, c := range []struct {
		name string
		nh   nexthop.NextHop
	}{
		{"by a device without fast path", elsewhere},
		{"on this host", nexthop.NextHop{Kernel: true}},
	} {
		tracker.reports[hostAt(2)](c.nh)
		if hop, there := plane[hostAt(2)]; !there || hop != (scionplane.NextHop{}) {
			t.Errorf("%s: fast path has %v, want a host that only the kernel reaches", c.name, plane)
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
	// The host that was asked for last is the only one not used since.
	now = now.Add(hostBusy + 5*time.Second)
	use(table, now, hostAt(2), hostAt(3))
	table.want(hostAt(5), now)
	tracker.reports[hostAt(5)](nexthop.NextHop{IfIndex: 7})
	if _, there := plane[hostAt(4)]; there || !tracker.stopped[hostAt(4)] {
		t.Error("the host used least recently was not evicted")
	}
	for _, n := range []int{2, 3, 5} {
		if _, there := plane[hostAt(n)]; !there {
			t.Errorf("host %d is gone, though in use or new", n)
		}
	}
	// A late report does not bring the evicted host back.
	tracker.reports[hostAt(4)](nexthop.NextHop{IfIndex: 7})
	if _, there := plane[hostAt(4)]; there {
		t.Error("an evicted host came back")
	}
	// Eviction lists all hosts, so it does not run for each packet.
	counting := table.plane.(*fakePlane)
	before := counting.listed
	for n := 6; n < 100; n++ {
		table.want(hostAt(n), now)
	}
	if counting.listed != before {
		t.Errorf("all hosts were listed %d times more within a second", counting.listed-before)
	}
	// With all of them in use, the host used least recently is evicted.
	now = now.Add(5 * time.Second)
	use(table, now, hostAt(2), hostAt(5))
	use(table, now.Add(-3*time.Second), hostAt(3))
	table.want(hostAt(6), now)
	tracker.reports[hostAt(6)](nexthop.NextHop{IfIndex: 7})
	if _, there := plane[hostAt(3)]; there || len(plane) != 3 || table.counts.total != 3 {
		t.Errorf("fast path has %v, want the newcomer in the place of host 3", plane)
	}
}

// TestAgeAfterAStepOfTheClock sets the clock back an hour. Hosts used since then count as in use, the others as old.
func TestAgeAfterAStepOfTheClock(t *testing.T) {
	now := time.Now()
	ageAt := func(d time.Duration) uint32 { return age(scionplane.HostUsed(now.Add(d)), scionplane.HostUsed(now)) }
	for _, c := range []struct {
		name  string
		used  time.Duration // relative to now
		inUse bool
	}{
		{"before the clock was set back", time.Hour, false},
		{"this second", 0, true},
		{"the next second, by rounding", time.Second, true},
		{"a minute ago", -time.Minute, false},
		{"two minutes ago", -2 * time.Minute, false},
	} {
		if got := ageAt(c.used) <= ageAt(-hostBusy); got != c.inUse {
			t.Errorf("%s: in use %v, want %v", c.name, got, c.inUse)
		}
	}
	if ageAt(time.Hour) <= ageAt(-2*time.Minute) {
		t.Errorf("age %d from before the clock was set back, %d from two minutes ago", ageAt(time.Hour), ageAt(-2*time.Minute))
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
