// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"culvert/internal/bpfobj"
)

// portTo returns a client's port whose flows to a VIP have a backend, as an address with it.
func (b *bed) portTo(client, vip string, m Backend) string {
	b.t.Helper()
	for port := 2000; port < 2200; port++ {
		from := fmt.Sprintf("%s:%d", client, port)
		frame := b.packet(from, vip, &layers.UDP{}, nil)
		if _, out, _ := b.run(frame); sentRight(frame, out, m) == nil {
			return from
		}
	}
	b.t.Fatal("200 flows have gone elsewhere")
	return ""
}

// A first fragment that somebody else has sent under the client's address, with the number of its datagram, does not take the
// rest of that away, be it to another flow or to a port that is no VIP's.
func TestForgedFragment(t *testing.T) {
	for name, c := range map[string]struct{ client, vip, other string }{
		"IPv4": {"203.0.113.7", "192.0.2.1:53", "192.0.2.1:54"},
		"IPv6": {"[2001:db8:7::7]", "[2001:db8::1]:53", "[2001:db8::1]:54"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, Options{})
			one, two := b.backend(1, 0, "10.0.0.11"), b.backend(2, 0, "10.0.0.12")
			b.vip(0, c.vip, protoUDP, []Backend{one, two})
			theirs := b.portTo(c.client, c.vip, one)
			forged := b.portTo(c.client, c.vip, two)
			collisions := func() uint64 {
				t.Helper()
				events, err := b.plane.Events(0)
				b.must(err)
				return events["collision"]
			}
			id := uint32(0)
			for what, to := range map[string]string{"another flow": c.vip, "another port": c.other} {
				var old, others [][]byte
				within(t, time.Second, func() {
					id++
					before := collisions()
					old = fragments(b.packet(theirs, c.vip, &layers.UDP{}, make([]byte, 3000)), 1000, id)
					others = fragments(b.packet(forged, to, &layers.UDP{}, bytes.Repeat([]byte{6}, 3000)), 1000, id)
					b.sent(old[0], "fwd lb-flow", one)
					if _, _, reason := b.run(others[0]); reason != "fwd lb-flow" && reason != "pass other" {
						t.Fatalf("the forged fragment left as %q", reason)
					}
					b.sent(old[1], "fwd lb-fragment", one)
					b.sent(old[0], "fwd lb-flow", one) // once more
					b.sent(old[2], "fwd lb-fragment", one)
					if n := collisions() - before; n != 1 {
						t.Errorf("%s: counted %d collisions, want 1", what, n)
					}
				})
				// The number is used again, soon after.
				m := b.inst.Map(bpfobj.PipelineMapLbFragments)
				key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
				for it := m.Iterate(); it.Next(&key, &value); {
					bpfobj.Native.PutUint32(value[16:], bpfobj.Native.Uint32(value[16:])-2)
					b.must(m.Put(key, value))
				}
				b.run(others[0])
				if to == c.vip {
					b.sent(others[1], "fwd lb-fragment", two)
				} else {
					b.leaves(others[1], "pass other")
				}
			}
			// The backend of the datagram that was first has gone.
			old := fragments(b.packet(theirs, c.vip, &layers.UDP{}, make([]byte, 3000)), 1000, 100)
			others := fragments(b.packet(forged, c.vip, &layers.UDP{}, make([]byte, 3000)), 1000, 100)
			b.sent(old[0], "fwd lb-flow", one)
			one.Used = false
			b.must(b.plane.SetBackend(one))
			b.sent(others[0], "fwd lb-flow", two)
			b.sent(others[1], "fwd lb-fragment", two)
		})
	}
}

// A packet with a connection ID that somebody else has sent under the client's address and port goes where it says, but
// takes nothing along that goes by the flow: the client's connection may be in its handshake.
func TestForgedID(t *testing.T) {
	b := newBed(t, Options{Flows: 70})
	has, named := b.backend(1, 0, "10.0.0.11"), b.backend(2, 0, "10.0.0.12")
	const vip, client = "192.0.2.1:443", "203.0.113.7:5000"
	b.vip(0, vip, protoUDP, []Backend{has}, func(v *VIP) { v.ServerID = 2 })
	id := []byte{0xab, 0xcd}
	b.must(b.plane.SetServerID(0, id, named.ID))
	cid := append([]byte{9}, append(id, 1, 2, 3)...)
	initial := b.packet(client, vip, &layers.UDP{}, quicLong(0x40, 1, cid))
	for what, forged := range map[string][]byte{"short": quicShort(cid), "Handshake": quicLong(0x60, 1, cid)} {
		b.buckets(func(bucket *bpfobj.PipelineLbBucket) { *bucket = bpfobj.PipelineLbBucket{} })
		by := b.changedUDP(initial, forged)
		b.sent(initial, "fwd lb-new", has)
		b.sent(by, "fwd lb-quic", named)
		if b.sent(initial, "fwd lb-flow", has, named).ID != has.ID {
			t.Fatalf("%s: the handshake was moved", what)
		}
		// Nor do more of them keep the flow.
		for range 3 {
			b.age(DefaultIdleUDP / 3)
			b.sent(by, "fwd lb-quic", named)
		}
		b.age(2 * Tick)
		// It is over: the client has moved to where another one was.
		b.sent(by, "fwd lb-quic", named)
		b.sent(initial, "fwd lb-flow", named)
		// Its backend has gone.
		b.buckets(func(bucket *bpfobj.PipelineLbBucket) { *bucket = bpfobj.PipelineLbBucket{} })
		b.sent(initial, "fwd lb-new", has)
		gone := has
		gone.Used = false
		b.must(b.plane.SetBackend(gone))
		b.sent(by, "fwd lb-quic", named)
		b.sent(initial, "fwd lb-flow", named)
		b.must(b.plane.SetBackend(has))
	}
}
