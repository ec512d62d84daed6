// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"net/netip"
	"testing"
	"time"

	"culvert/internal/host/nexthop"
)

// floodAt returns the n-th of many addresses that no host has.
func floodAt(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 64, byte(n >> 8), byte(n)}) }

// TestUnresolvedHostsEvictNone asks for two thousand addresses a second that no host has. A host in use stays.
func TestUnresolvedHostsEvictNone(t *testing.T) {
	table, tracker, plane := newFakeTable()
	table.limit = 1000
	now := time.Now()
	table.want(hostAt(2), now)
	tracker.reports[hostAt(2)](nexthop.NextHop{IfIndex: 7})
	for n := range 20_000 {
		now = now.Add(500 * time.Microsecond)
		table.want(floodAt(n), now)
	}
	if _, there := plane[hostAt(2)]; !there {
		t.Error("a host in use was evicted for addresses that no host has")
	}
	if tracked := len(tracker.reports) - len(tracker.stopped); tracked > 400 {
		t.Errorf("%d addresses are tracked at a time", tracked)
	}
}

// TestUnresolvedHostBacksOff checks that a host which does not answer gives way to others, and that each pause before it
// is resolved again is longer than the one before.
func TestUnresolvedHostBacksOff(t *testing.T) {
	table, tracker, _ := newFakeTable()
	now := time.Now()
	next := 0
	// displace asks for as many other hosts as may be unresolved.
	displace := func() {
		now = now.Add(resolveTime)
		for range maxUnresolved {
			table.want(floodAt(next), now)
			next++
		}
	}
	for pause := backOffFirst; pause <= 4*backOffLast; pause *= 2 {
		table.want(hostAt(2), now)
		if tracker.stopped[hostAt(2)] || table.hosts[hostAt(2)] == nil {
			t.Fatalf("not resolved after its pause, before one of %v", pause)
		}
		displace()
		if table.hosts[hostAt(2)] != nil || !tracker.stopped[hostAt(2)] {
			t.Fatal("still resolved though others wait")
		}
		pause := min(pause, backOffLast)
		table.want(hostAt(2), now.Add(pause-time.Millisecond))
		if table.hosts[hostAt(2)] != nil {
			t.Fatalf("resolved again within the pause of %v", pause)
		}
		now = now.Add(pause)
	}
	// The pause is forgotten when it answers, or after a while.
	table.want(hostAt(2), now)
	tracker.reports[hostAt(2)](nexthop.NextHop{IfIndex: 7})
	if len(table.backOff.hosts) == 0 || !table.backOff.over(hostAt(2), now) || table.backOff.hosts[hostAt(2)] != nil {
		t.Error("a host that has answered is still remembered")
	}
	table.sweep(now.Add(3 * backOffLast))
	if left := len(table.backOff.hosts); left != 0 {
		t.Errorf("%d pauses are remembered for ever", left)
	}
}

// TestUnresolvedHostGetsItsTime checks that a host has time to answer, however many others are asked for meanwhile.
func TestUnresolvedHostGetsItsTime(t *testing.T) {
	table, tracker, plane := newFakeTable()
	now := time.Now()
	table.want(hostAt(2), now)
	for n := range 10_000 {
		table.want(floodAt(n), now.Add(resolveTime-1))
	}
	tracker.reports[hostAt(2)](nexthop.NextHop{IfIndex: 7})
	if _, there := plane[hostAt(2)]; !there || table.unresolved.Len() != maxUnresolved-1 {
		t.Errorf("%d hosts unresolved, %d in the fast path", table.unresolved.Len(), len(plane))
	}
}

// TestManyHostsLostAtOnce has all hosts lose their next hop at once, as when a cable is pulled. No more of them than
// maxUnresolved are resolved then.
func TestManyHostsLostAtOnce(t *testing.T) {
	table, tracker, plane := newFakeTable()
	now := time.Now()
	const hosts = 3 * maxUnresolved
	for n := range hosts {
		table.want(floodAt(n), now)
		tracker.reports[floodAt(n)](nexthop.NextHop{IfIndex: 7})
	}
	if len(plane) != hosts {
		t.Fatalf("fast path has %d hosts, want %d", len(plane), hosts)
	}
	for n := range hosts {
		tracker.reports[floodAt(n)](nexthop.NextHop{})
	}
	if len(plane) != 0 || table.unresolved.Len() != maxUnresolved || len(table.hosts) != maxUnresolved {
		t.Errorf("fast path has %d hosts, %d are followed, %d unresolved", len(plane), len(table.hosts), table.unresolved.Len())
	}
}

func TestLimitedLog(t *testing.T) {
	var entries [][]any
	s := limitedLog{write: func(message string, fields ...any) { entries = append(entries, append([]any{message}, fields...)) }}
	now := time.Now()
	for range 1000 {
		s.logAt(now, "full", "host", 1)
	}
	if len(entries) != logLimitEntries {
		t.Errorf("%d entries, want %d", len(entries), logLimitEntries)
	}
	s.logAt(now.Add(logLimitPeriod), "full", "host", 2)
	last := entries[len(entries)-1]
	if len(entries) != logLimitEntries+1 || len(last) != 5 || last[4] != 1000-logLimitEntries {
		t.Errorf("then %v, want the number of entries left out", last)
	}
}
