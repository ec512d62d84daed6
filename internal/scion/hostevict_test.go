// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"culvert/internal/host/nexthop"
)

// gatewayAt is the next hop of all that is behind a gateway.
func gatewayAt(n byte) nexthop.NextHop {
	hop := nexthop.NextHop{IfIndex: 7, DstMAC: [6]byte{2, 0, 0, 0, 1, n}}
	hop.Via = nexthop.Via{IfIndex: 7, MAC: hop.DstMAC, Gateway: true}
	return hop
}

// onWire is the next hop of a host that answers for itself.
func onWire(a netip.Addr) nexthop.NextHop {
	hop := nexthop.NextHop{IfIndex: 7, DstMAC: [6]byte{2, 0, a.As4()[0], a.As4()[1], a.As4()[2], a.As4()[3]}}
	hop.Via = nexthop.Via{IfIndex: 7, MAC: hop.DstMAC}
	return hop
}

// roomBed is a table that strangers fill.
type roomBed struct {
	t       *testing.T
	table   *hostTable
	tracker *fakeTracker
	plane   fakeHosts
	now     time.Time
	flooded uint32
}

func newRoomBed(t *testing.T, limit int) *roomBed {
	b := &roomBed{t: t, now: time.Now()}
	b.table, b.tracker, b.plane = newFakeTable()
	b.table.limit = limit
	return b
}

// want has a host asked for and found, if there is room, and sent to.
func (b *roomBed) want(a netip.Addr, hop nexthop.NextHop) (there bool) {
	b.table.want(a, b.now)
	if h := b.table.hosts[a]; h != nil && h.waiting != nil {
		b.tracker.reports[a](hop)
	}
	use(b.table, b.now, a)
	_, there = b.plane[a]
	return there
}

// flood has as many addresses behind gateways by turns asked for that nobody has, 1,000 a second, and all that got
// a place stays in use. Other is called before each of them.
func (b *roomBed) flood(addresses int, gateways []nexthop.NextHop, other func()) {
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

// Behind gateways every address has a next hop. Somebody names far more of them than there is room for, and keeps all that got
// a place in use. Hosts on the wire stay, the gateways themselves and this host as well, though nobody sends to them, and so
// do the hosts of a gateway that has few. New ones of all these get a place at once.
func TestMadeUpHostsBehindGateways(t *testing.T) {
	b := newRoomBed(t, 1600)
	hop := map[netip.Addr]nexthop.NextHop{
		hostAt(1): {Kernel: true}, // this host
		// The gateways, which pass packets on, have addresses of their own.
		hostAt(2): {IfIndex: 7, Via: nexthop.Via{IfIndex: 7, MAC: gatewayAt(1).DstMAC}},
		hostAt(3): {IfIndex: 7, Via: nexthop.Via{IfIndex: 7, MAC: gatewayAt(2).DstMAC}},
	}
	for n := 4; n < 50; n++ {
		hop[hostAt(n)] = onWire(hostAt(n))
	}
	for n := 50; n < 200; n++ {
		hop[hostAt(n)] = gatewayAt(3)
	}
	for a, hop := range hop {
		if !b.want(a, hop) {
			t.Fatalf("no room for %s in an empty table", a)
		}
	}
	n := 0
	newcomer := func() {
		if n++; n%1000 == 0 {
			a := netip.AddrFrom4([4]byte{10, 0, 1, byte(n / 1000)})
			if hop[a] = onWire(a); !b.want(a, hop[a]) {
				t.Errorf("no room for new host %s on the wire", a)
			}
		}
	}
	b.flood(30_000, []nexthop.NextHop{gatewayAt(1), gatewayAt(2)}, newcomer)
	// Nobody can tell these from hosts that answer, but for being many.
	b.flood(10_000, []nexthop.NextHop{{Kernel: true, Via: nexthop.Via{IfIndex: 9}}}, newcomer)
	for a := range hop {
		if _, there := b.plane[a]; !there {
			t.Errorf("host %s was pushed out", a)
		}
	}
	if most := b.table.limit - b.table.limit/evictShare + 50; len(b.plane) > most {
		t.Errorf("fast path has %d hosts, want %d at most: the rest is kept free", len(b.plane), most)
	}
}

// A host behind the very gateway that strangers fill the table by cannot be told from theirs. While it is sent to it stays;
// after a pause it finds a place again.
func TestHostBehindAFloodedGateway(t *testing.T) {
	b := newRoomBed(t, 1600)
	live, pausing := hostAt(2), hostAt(3)
	for _, a := range []netip.Addr{live, pausing} {
		if !b.want(a, gatewayAt(1)) {
			t.Fatalf("no room for %s in an empty table", a)
		}
	}
	n := 0
	b.flood(60_000, []nexthop.NextHop{gatewayAt(1)}, func() {
		if n++; n%100 == 0 && !b.want(live, gatewayAt(1)) {
			t.Fatalf("a host in use was pushed out by addresses used less recently")
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
		t.Error("a host that is sent to again finds no place for three seconds")
	}
}

// All hosts of an earlier process are there before anything is found of them. They stay until it is, and count once.
func TestAdoptedHostsAreCounted(t *testing.T) {
	b := newRoomBed(t, 160)
	for n := range 160 {
		b.plane[floodAt(n)] = NextHop(onWire(floodAt(n)))
		b.table.adopt(floodAt(n), b.now)
	}
	if b.want(hostAt(2), onWire(hostAt(2))) || len(b.plane) != 160 {
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
	if !b.want(hostAt(2), onWire(hostAt(2))) {
		t.Error("no host behind the gateway made room for one on the wire")
	}
	for n := range 160 {
		b.tracker.reports[floodAt(n)](nexthop.NextHop{})
	}
	if b.table.counts.total != 1 || len(b.table.counts.behind) != 1 || len(b.plane) != 1 {
		t.Errorf("%d hosts counted, fast path has %d, want the one on the wire", b.table.counts.total, len(b.plane))
	}
}
