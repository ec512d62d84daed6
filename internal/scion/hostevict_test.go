// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"culvert/internal/host/nexthop"
)

// gatewayAt returns the next hop of the hosts behind gateway n.
func gatewayAt(n byte) nexthop.NextHop {
	hop := nexthop.NextHop{IfIndex: 7, DstMAC: [6]byte{2, 0, 0, 0, 1, n}}
	hop.Via = nexthop.Via{IfIndex: 7, MAC: hop.DstMAC, Gateway: true}
	return hop
}

// onLink returns the next hop of a host that answers for itself.
func onLink(a netip.Addr) nexthop.NextHop {
	hop := nexthop.NextHop{IfIndex: 7, DstMAC: [6]byte{2, 0, a.As4()[0], a.As4()[1], a.As4()[2], a.As4()[3]}}
	hop.Via = nexthop.Via{IfIndex: 7, MAC: hop.DstMAC}
	return hop
}

// floodBed is a table of hosts that a test fills with made-up addresses.
type floodBed struct {
	t       *testing.T
	table   *hostTable
	tracker *fakeTracker
	plane   fakeHosts
	now     time.Time
	flooded uint32
}

func newFloodBed(t *testing.T, limit int) *floodBed {
	b := &floodBed{t: t, now: time.Now()}
	b.table, b.tracker, b.plane = newFakeTable()
	b.table.limit = limit
	return b
}

// want asks for a host, reports its next hop, and sends to it. It tells whether the host is in the fast path then.
func (b *floodBed) want(a netip.Addr, hop nexthop.NextHop) (there bool) {
	b.table.want(a, b.now)
	if h := b.table.hosts[a]; h != nil && h.waiting != nil {
		b.tracker.reports[a](hop)
	}
	use(b.table, b.now, a)
	_, there = b.plane[a]
	return there
}

// flood asks for addresses that no host has, 1,000 a second, by turns behind each of the gateways. All that are in the
// fast path stay in use. It calls other before each of them.
func (b *floodBed) flood(addresses int, gateways []nexthop.NextHop, other func()) {
	plane := b.table.plane.(*fakePlane)
	base := netip.MustParseAddr("10.128.0.0").As4()
	for n := range addresses {
		other()
		b.flooded++
		var raw [4]byte
		binary.BigEndian.PutUint32(raw[:], binary.BigEndian.Uint32(base[:])+b.flooded)
		b.now = b.now.Add(time.Millisecond)
		b.want(netip.AddrFrom4(raw), gateways[n%len(gateways)])
		if n%500 == 0 {
			for a := range b.plane {
				if a.As4()[1] >= 128 {
					plane.used[a] = b.now
				}
			}
		}
		if len(b.plane) > b.table.limit || b.table.counts.total != len(b.plane) {
			b.t.Fatalf("fast path has %d hosts, counted as %d, limit %d", len(b.plane), b.table.counts.total, b.table.limit)
		}
	}
}

// TestMadeUpHostsBehindGateways names far more addresses behind gateways than the table holds, and keeps them in use.
// Hosts on the link stay though they are idle, and so do the gateways, this host, and the hosts of a gateway with few. New
// hosts on the link enter at once.
func TestMadeUpHostsBehindGateways(t *testing.T) {
	b := newFloodBed(t, 1600)
	hop := map[netip.Addr]nexthop.NextHop{
		hostAt(1): {Kernel: true}, // this host
		// The gateways have addresses of their own.
		hostAt(2): {IfIndex: 7, Via: nexthop.Via{IfIndex: 7, MAC: gatewayAt(1).DstMAC}},
		hostAt(3): {IfIndex: 7, Via: nexthop.Via{IfIndex: 7, MAC: gatewayAt(2).DstMAC}},
	}
	for n := 4; n < 50; n++ {
		hop[hostAt(n)] = onLink(hostAt(n))
	}
	for n := 50; n < 200; n++ {
		hop[hostAt(n)] = gatewayAt(3)
	}
	for a, hop := range hop {
		if !b.want(a, hop) {
			t.Fatalf("no room for %s in a table that is not full", a)
		}
	}
	n := 0
	newcomer := func() {
		if n++; n%1000 == 0 {
			a := netip.AddrFrom4([4]byte{10, 0, 1, byte(n / 1000)})
			if hop[a] = onLink(a); !b.want(a, hop[a]) {
				t.Errorf("no room for new host %s on the link", a)
			}
		}
	}
	b.flood(30_000, []nexthop.NextHop{gatewayAt(1), gatewayAt(2)}, newcomer)
	// These differ from hosts that answer only in their number.
	b.flood(10_000, []nexthop.NextHop{{Kernel: true, Via: nexthop.Via{IfIndex: 9}}}, newcomer)
	for a := range hop {
		if _, there := b.plane[a]; !there {
			t.Errorf("host %s was evicted", a)
		}
	}
	if most := b.table.limit - b.table.limit/evictShare + 50; len(b.plane) > most {
		t.Errorf("fast path has %d hosts, want %d at most: the rest is kept free", len(b.plane), most)
	}
}

// TestHostBehindAFloodedGateway has a host behind the gateway of the made-up addresses, from which nothing tells it. It
// stays while it is sent to, and enters again after a pause.
func TestHostBehindAFloodedGateway(t *testing.T) {
	b := newFloodBed(t, 1600)
	live, pausing := hostAt(2), hostAt(3)
	for _, a := range []netip.Addr{live, pausing} {
		if !b.want(a, gatewayAt(1)) {
			t.Fatalf("no room for %s in an empty table", a)
		}
	}
	n := 0
	b.flood(60_000, []nexthop.NextHop{gatewayAt(1)}, func() {
		if n++; n%100 == 0 && !b.want(live, gatewayAt(1)) {
			t.Fatalf("a host in use was evicted for addresses used less recently")
		}
	})
	if _, there := b.plane[pausing]; there {
		t.Error("the host used least recently is still there: the test shows nothing")
	}
	back := false
	b.flood(3000, []nexthop.NextHop{gatewayAt(1)}, func() {
		back = back || b.want(pausing, gatewayAt(1))
	})
	if !back {
		t.Error("a host that is sent to again does not enter within three seconds")
	}
}

// TestAdoptedHostsAreCounted checks that the hosts of an earlier process stay until their next hops are found, and are
// counted once.
func TestAdoptedHostsAreCounted(t *testing.T) {
	b := newFloodBed(t, 160)
	for n := range 160 {
		b.plane[floodAt(n)] = NextHop(onLink(floodAt(n)))
		b.table.adopt(floodAt(n), b.now)
	}
	if b.want(hostAt(2), onLink(hostAt(2))) || len(b.plane) != 160 {
		t.Fatalf("fast path has %d hosts, want those of the earlier process", len(b.plane))
	}
	for range 2 {
		for n := range 160 {
			b.tracker.reports[floodAt(n)](gatewayAt(1))
		}
	}
	if via := gatewayAt(1).Via; b.table.counts.total != 160 || b.table.counts.behind[via] != 160 {
		t.Errorf("%d hosts counted, %d behind the gateway, want 160", b.table.counts.total, b.table.counts.behind[via])
	}
	b.now = b.now.Add(evictPeriod)
	if !b.want(hostAt(2), onLink(hostAt(2))) {
		t.Error("no host behind the gateway was evicted for one on the link")
	}
	for n := range 160 {
		b.tracker.reports[floodAt(n)](nexthop.NextHop{})
	}
	if b.table.counts.total != 1 || len(b.table.counts.behind) != 1 || len(b.plane) != 1 {
		t.Errorf("%d hosts counted, fast path has %d, want the one on the link", b.table.counts.total, len(b.plane))
	}
}
