// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
)

// newTestExchange returns the view of the flow table of a bed.
func newTestExchange(b *bed) *Exchange {
	b.t.Helper()
	x := NewExchange(b.inst)
	b.t.Cleanup(x.Close)
	open, err := x.Follow()
	b.must(err)
	if !open {
		b.t.Fatal("there is no flow table")
	}
	return x
}

// TestDeviating has the programs assign flows by rings of all kinds. None deviates before the rings change, and then those do whose
// position has another backend.
func TestDeviating(t *testing.T) {
	const flows = 200
	b := newBed(t, Options{Flows: 10_000})
	x := newTestExchange(b)
	var one, two [4]Backend
	vips := []struct {
		addr, client string
		proto        uint8
		change       func(*VIP)
	}{
		{"192.0.2.1:80", "203.0.113.%d:%d", 6, func(*VIP) {}},
		{"192.0.2.2:0", "203.0.113.%d:%d", 17, func(v *VIP) { v.Source = true }},
		{"192.0.2.3:0", "203.0.113.%d:%d", 17, func(v *VIP) { v.SourcePort = true }},
		{"[2001:db8::1]:443", "[2001:db8:1::%d]:%d", 6, func(*VIP) {}},
	}
	for n, v := range vips {
		number := uint32(n)
		one[n], two[n] = b.backend(2*number+1, number, "10.0.0.11"), b.backend(2*number+2, number, "10.0.0.12")
		b.vip(number, v.addr, v.proto, []Backend{one[n], two[n]}, v.change)
		for i := range flows {
			to := netip.MustParseAddrPort(v.addr)
			if to.Port() == 0 {
				to = netip.AddrPortFrom(to.Addr(), uint16(1+i))
			}
			from := fmt.Sprintf(v.client, i%250+1, 1024+i*31)
			if v.proto == 6 {
				b.run(b.packet(from, to.String(), syn(), nil))
			} else {
				b.run(b.packet(from, to.String(), &layers.UDP{}, nil))
			}
		}
	}
	deviating := func() (perVIP [4]int) {
		b.must(x.ReadRings())
		x.Deviating(func(k FlowKey, h Held) {
			perVIP[k.VIP()]++
			if h.Backend != one[k.VIP()].ID {
				t.Errorf("backend %x", h.Backend)
			}
		})
		return perVIP
	}
	if n := deviating(); n != [4]int{} {
		t.Errorf("%v flows have other backends than the rings', which have assigned them", n)
	}
	counts, err := b.plane.FlowCounts()
	b.must(err)
	for n := range vips {
		b.ring(uint32(n), []Backend{two[n]})
		if counts[one[n].ID] == 0 || counts[two[n].ID] == 0 {
			t.Errorf("VIP %d: not all backends have flows: %v", n, counts)
		}
	}
	got := deviating()
	for n := range vips {
		if uint64(got[n]) != counts[one[n].ID] {
			t.Errorf("VIP %d: %d flows have another backend than the ring's, want %d", n, got[n], counts[one[n].ID])
		}
	}
	b.age(time.Hour)
	if n := deviating(); n != [4]int{} {
		t.Errorf("%v flows that have timed out", n)
	}
}

// TestExchangePut puts flows into a table. They take free ways and those of flows that have timed out, and no others. An entry of the
// flow stays, unless it is the one that was meant.
func TestExchangePut(t *testing.T) {
	b := newBed(t, Options{Flows: 1}) // all flows are in one bucket, or in few
	one := b.backend(1, 3, "10.0.0.11")
	two := b.backend(2, 3, "10.0.0.12")
	b.vip(3, "192.0.2.1:80", 6, []Backend{one})
	x := newTestExchange(b)
	key := func(n int) FlowKey {
		return NewFlowKey(3, netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, 1}), uint16(1024+n)), 80)
	}
	put := func(k FlowKey, h Held, was *Held, want PutResult) {
		t.Helper()
		if got, err := x.Put(k, h, was); err != nil || got != want {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
	now, _ := x.At(FlowOpen, 0)
	room := int(x.flows.buckets()) * bucketWays
	put(key(0), Held{two.ID, now}, nil, PutDone)
	if h, ok := x.Find(key(0)); !ok || h != (Held{two.ID, now}) {
		t.Errorf("found %+v, %v", h, ok)
	}
	b.expectSent(b.packet("203.0.113.1:1024", "192.0.2.1:80", ack(), nil), "fwd lb-flow", two)
	h, _ := x.Find(key(0)) // the packet may have changed the time
	put(key(0), Held{one.ID, now}, nil, PutKept)
	put(key(0), Held{one.ID, now}, &Held{one.ID, h.Time}, PutKept)
	put(key(0), Held{one.ID, now}, &Held{two.ID, h.Time + 4}, PutKept)
	put(key(0), Held{one.ID, h.Time}, &h, PutDone)
	b.expectSent(b.packet("203.0.113.1:1024", "192.0.2.1:80", ack(), nil), "fwd lb-flow", one)

	for n := range 20 * room { // until it is full of flows of one packet
		if _, err := x.Put(key(n), Held{two.ID, now &^ 3}, nil); err != nil {
			t.Fatal(err)
		}
	}
	put(key(100_000), Held{one.ID, now}, nil, PutFull)
	b.age(2 * time.Minute) // those have timed out
	if open, err := x.Follow(); err != nil || !open {
		t.Fatal(open, err)
	}
	now, _ = x.At(FlowOpen, 0)
	put(key(100_000), Held{one.ID, now}, nil, PutDone)
	if _, ok := x.At(FlowOpen, DefaultIdleTCP); ok {
		t.Error("a flow that has timed out has a time")
	}
	if at, ok := x.At(FlowOpen, 20*time.Second); !ok || x.Idle(at) < 20*time.Second || x.Idle(at) > 20*time.Second+Tick {
		t.Errorf("20 s are %v", x.Idle(at))
	}
}
