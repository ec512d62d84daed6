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

// portTo returns an address and port of a client whose flow to a VIP has a backend.
func (b *bed) portTo(client, vip string, backend Backend) string {
	b.t.Helper()
	for port := 2000; port < 2200; port++ {
		from := fmt.Sprintf("%s:%d", client, port)
		frame := b.packet(from, vip, &layers.UDP{}, nil)
		if _, out, _ := b.run(frame); checkForwarded(frame, out, backend) == nil {
			return from
		}
	}
	b.t.Fatal("the backend has got none of 200 flows")
	return ""
}

// TestForgedFragment forges a first fragment, with the address of a client and the ID of one of its datagrams. The other fragments
// of that datagram keep their backend, whether the forged fragment is of another flow or to a port of no VIP.
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
					b.expectSent(old[0], "fwd lb-flow", one)
					if _, _, reason := b.run(others[0]); reason != "fwd lb-flow" && reason != "pass other" {
						t.Fatalf("the forged fragment left as %q", reason)
					}
					b.expectSent(old[1], "fwd lb-fragment", one)
					b.expectSent(old[0], "fwd lb-flow", one) // a repeated first fragment
					b.expectSent(old[2], "fwd lb-fragment", one)
					if n := collisions() - before; n != 1 {
						t.Errorf("%s: counted %d collisions, want 1", what, n)
					}
				})
				// Some time later the ID may be used for another datagram.
				m := b.inst.Map(bpfobj.PipelineMapLbFragments)
				key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
				for it := m.Iterate(); it.Next(&key, &value); {
					bpfobj.Native.PutUint32(value[16:], bpfobj.Native.Uint32(value[16:])-2)
					b.must(m.Put(key, value))
				}
				b.run(others[0])
				if to == c.vip {
					b.expectSent(others[1], "fwd lb-fragment", two)
				} else {
					b.expectUnchanged(others[1], "pass other")
				}
			}
			// The backend of the first datagram has been deleted.
			old := fragments(b.packet(theirs, c.vip, &layers.UDP{}, make([]byte, 3000)), 1000, 100)
			others := fragments(b.packet(forged, c.vip, &layers.UDP{}, make([]byte, 3000)), 1000, 100)
			b.expectSent(old[0], "fwd lb-flow", one)
			one.Used = false
			b.must(b.plane.SetBackend(one))
			b.expectSent(others[0], "fwd lb-flow", two)
			b.expectSent(others[1], "fwd lb-fragment", two)
		})
	}
}

// TestForgedID forges a packet with a server ID, with the address and port of a client. The packet goes to the backend with that
// ID, but packets without the ID keep their backend, because the client's connection may be in its handshake.
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
		withID := b.changedUDP(initial, forged)
		b.expectSent(initial, "fwd lb-new", has)
		b.expectSent(withID, "fwd lb-quic", named)
		if b.expectSent(initial, "fwd lb-flow", has, named).ID != has.ID {
			t.Fatalf("%s: the handshake was moved", what)
		}
		// Packets with the ID do not prolong the flow's entry.
		for range 3 {
			b.age(DefaultIdleUDP / 3)
			b.expectSent(withID, "fwd lb-quic", named)
		}
		b.age(2 * Tick)
		// The entry has expired: the packet with the ID is the first one of a new flow.
		b.expectSent(withID, "fwd lb-quic", named)
		b.expectSent(initial, "fwd lb-flow", named)
		// The backend of the flow has been deleted.
		b.buckets(func(bucket *bpfobj.PipelineLbBucket) { *bucket = bpfobj.PipelineLbBucket{} })
		b.expectSent(initial, "fwd lb-new", has)
		gone := has
		gone.Used = false
		b.must(b.plane.SetBackend(gone))
		b.expectSent(withID, "fwd lb-quic", named)
		b.expectSent(initial, "fwd lb-flow", named)
		b.must(b.plane.SetBackend(has))
	}
}
