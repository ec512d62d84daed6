// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"culvert/internal/bpfobj"
)

// fragments cuts an untagged frame of UDP or TCP into frames of at most mtu bytes of IP.
func fragments(frame []byte, mtu int, id uint32) (all [][]byte) {
	_, packet, err := ipPart(frame)
	if err != nil {
		panic(err)
	}
	head := 20
	if packet[0]>>4 == 6 {
		head = 48
	}
	payload := packet[min(head, 40):]
	step := (mtu - head) &^ 7
	for off := 0; off < len(payload); off += step {
		n := min(step, len(payload)-off)
		more := off+n < len(payload)
		var f []byte
		if head == 20 {
			f = append(bytes.Clone(frame[:34]), payload[off:off+n]...)
			binary.BigEndian.PutUint16(f[16:], uint16(20+n))
			binary.BigEndian.PutUint16(f[18:], uint16(id))
			f = fragment4(f, off, more)
		} else {
			f = append(bytes.Clone(frame[:54]), payload[off:off+n]...)
			binary.BigEndian.PutUint16(f[18:], uint16(n))
			f = fragment6(f, off, more, id)
		}
		all = append(all, f)
	}
	return all
}

// reassembled returns the datagram whose fragments have arrived at a backend.
func reassembled(outs [][]byte) []byte {
	datagram := make([]byte, 0, 9100)
	for _, out := range outs {
		_, packet, err := ipPart(out)
		if err != nil {
			panic(err)
		}
		packet = packet[len(packet)-innerLen(packet):]
		off, payload := int(binary.BigEndian.Uint16(packet[6:])&0x1fff)*8, packet[20:]
		if packet[0]>>4 == 6 {
			off, payload = int(binary.BigEndian.Uint16(packet[42:])&^7), packet[48:]
		}
		if end := off + len(payload); end > len(datagram) {
			datagram = datagram[:end]
		}
		copy(datagram[off:], payload)
	}
	return datagram
}

// innerLen returns the length of the packet in an IPIP packet.
func innerLen(outer []byte) int {
	if outer[0]>>4 == 4 {
		return len(outer) - 20
	}
	return len(outer) - 40
}

// TestFragments wants a datagram of 9000 bytes to arrive whole at one backend, in whatever order the fragments after the
// first come.
func TestFragments(t *testing.T) {
	b := newBed(t, Options{})
	one := b.backend(1, 0, "10.0.0.11", func(backend *Backend) { backend.Hop.MTU = 1600 })
	two := b.backend(2, 0, "fd00::12", func(backend *Backend) { backend.Hop.MTU = 1600 })
	rng := rand.New(rand.NewPCG(1, 2))
	for n, vip := range []string{"192.0.2.1:53", "[2001:db8::1]:53"} {
		b.vip(uint32(n), vip, protoUDP, []Backend{one, two})
		client := "203.0.113.7"
		if n == 1 {
			client = "2001:db8:7::7"
		}
		var all uint64
		for range 4 {
			// Fragments of two datagrams of new flows and of one of a known flow are interleaved.
			type datagram struct {
				whole     []byte
				fragments [][]byte
				outs      [][]byte
				backend   Backend
			}
			var sets []*datagram
			for _, known := range []bool{false, false, true} {
				data := make([]byte, 9000-8)
				for i := range data {
					data[i] = byte(rng.Uint32())
				}
				from := netip.AddrPortFrom(netip.MustParseAddr(client), uint16(rng.Uint32()|1))
				frame := b.packet(from.String(), vip, &layers.UDP{}, data)
				want := "fwd lb-new"
				if known {
					want = "fwd lb-flow"
					b.expectSent(b.packet(from.String(), vip, &layers.UDP{}, nil), "fwd lb-new", one, two)
				}
				_, packet, _ := ipPart(frame)
				d := &datagram{whole: packet[len(packet)-9000:], fragments: fragments(frame, 1500, rng.Uint32())}
				_, out, got := b.run(d.fragments[0])
				if got != want {
					t.Fatalf("the first fragment left as %q, not %q", got, want)
				}
				d.backend = b.expectSent(d.fragments[0], "fwd lb-flow", one, two)
				d.outs, d.fragments = append(d.outs, out), d.fragments[1:]
				rng.Shuffle(len(d.fragments), func(i, j int) { d.fragments[i], d.fragments[j] = d.fragments[j], d.fragments[i] })
				sets = append(sets, d)
				all += 2
			}
			for left := true; left; {
				left = false
				for _, d := range sets {
					if len(d.fragments) == 0 {
						continue
					}
					left = true
					f := d.fragments[0]
					d.fragments = d.fragments[1:]
					_, out, got := b.run(f)
					if err := checkForwarded(f, out, d.backend); err != nil || got != "fwd lb-fragment" {
						t.Fatalf("a fragment left as %q: %v", got, err)
					}
					d.outs = append(d.outs, out)
					all++
				}
			}
			for _, d := range sets {
				if !bytes.Equal(reassembled(d.outs), d.whole) {
					t.Fatal("the datagram has changed")
				}
				for _, out := range d.outs[1:] {
					if !bytes.Equal(out[26:30], d.outs[0][26:30]) {
						t.Fatalf("fragments of one packet have other outer sources: %x, %x", d.outs[0][26:30], out[26:30])
					}
				}
			}
		}
		if n, err := b.event(uint32(n), bpfobj.PipelineLbEventLB_EVENT_FRAGMENT); err != nil || n != all {
			t.Errorf("counted %d fragments of %d, %v", n, all, err)
		}
	}
}

// TestLostFragments sends fragments without the first one, and changes the VIPs of the address.
func TestLostFragments(t *testing.T) {
	b := newBed(t, Options{})
	one, two := b.backend(1, 0, "10.0.0.11"), b.backend(2, 0, "10.0.0.12")
	const addr, other = "192.0.2.1:53", "192.0.2.1:80"
	number := func(on uint32, event bpfobj.PipelineLbEvent, want uint64) {
		t.Helper()
		if n, err := b.event(on, event); err != nil || n != want {
			t.Fatalf("VIP %d counts %d of event %d, want %d, %v", on, n, event, want, err)
		}
	}
	parts := func(vip string, id uint32) [][]byte {
		return fragments(b.packet(client4, vip, &layers.UDP{}, make([]byte, 3000)), 1000, id)
	}
	key := func(vip string) VIPKey {
		ap := netip.MustParseAddrPort(vip)
		return VIPKey{Addr: ap.Addr(), Proto: protoUDP, Port: ap.Port()}
	}
	b.vip(0, addr, protoUDP, []Backend{one, two})
	lost := parts(addr, 1)
	b.expectUnchanged(lost[1], "drop lb-fragment")
	number(0, bpfobj.PipelineLbEventLB_EVENT_LOST, 1)
	// The first fragment is to a port of no VIP, so the others are to no VIP.
	foreign := parts("192.0.2.1:54", 2)
	for _, f := range foreign {
		b.expectUnchanged(f, "pass other")
	}
	// No VIP has this protocol.
	b.expectUnchanged(fragments(b.packet(client4, addr, &layers.TCP{}, make([]byte, 3000)), 1000, 3)[1], "pass other")
	// The VIP assigns flows by the client's address, which each fragment has.
	source := func(v *VIP) { v.Source = true }
	b.vip(0, addr, protoUDP, []Backend{one, two}, source)
	backend := b.expectSent(b.packet(client4, addr, &layers.UDP{}, nil), "fwd lb-new", one, two)
	for _, f := range lost[1:] {
		b.expectSent(f, "fwd lb-fragment", backend)
	}
	// With two VIPs of the address, the fragment may be to either.
	b.vip(1, other, protoUDP, []Backend{one, two}, source)
	b.expectUnchanged(lost[1], "drop lb-fragment")
	b.vip(0, addr, protoUDP, []Backend{one, two}, source) // writing a VIP again changes nothing
	b.expectUnchanged(lost[1], "drop lb-fragment")
	number(0, bpfobj.PipelineLbEventLB_EVENT_LOST, 3)
	b.must(b.plane.DeleteVIP(key(other)))
	b.expectSent(lost[1], "fwd lb-fragment", backend)
	b.must(b.plane.DeleteVIP(key(addr)))
	b.expectUnchanged(lost[1], "pass other")
	vips, err := b.plane.VIPs()
	if b.must(err); len(vips) != 0 {
		t.Errorf("left: %v", vips)
	}
	// The VIP has no backends.
	b.vip(0, addr, protoUDP, nil, source)
	b.expectUnchanged(lost[1], "pass lb-empty")
}

// TestFragmentsForgotten wants the backend of a first fragment to be forgotten after some time, and when it is deleted.
func TestFragmentsForgotten(t *testing.T) {
	b := newBed(t, Options{})
	one := b.backend(1, 0, "10.0.0.11")
	b.vip(0, "192.0.2.1:53", protoUDP, []Backend{one})
	parts := fragments(b.packet(client4, "192.0.2.1:53", &layers.UDP{}, make([]byte, 3000)), 1000, 7)
	b.expectSent(parts[0], "fwd lb-new", one)
	b.expectSent(parts[1], "fwd lb-fragment", one)
	m := b.inst.Map(bpfobj.PipelineMapLbFragments)
	key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
	it := m.Iterate()
	if !it.Next(&key, &value) {
		t.Fatal("the first fragment is not stored")
	}
	at := bpfobj.Native.Uint32(value[16:])
	bpfobj.Native.PutUint32(value[16:], at-57)
	b.must(m.Put(key, value))
	b.expectUnchanged(parts[1], "drop lb-fragment")
	bpfobj.Native.PutUint32(value[16:], at)
	b.must(m.Put(key, value))
	b.expectSent(parts[1], "fwd lb-fragment", one)
	one.Used = false
	b.must(b.plane.SetBackend(one))
	b.expectUnchanged(parts[1], "drop lb-fragment")
}

// TestSmallFragments wants first fragments without the ports and TCP's flags to be left to the slow path.
func TestSmallFragments(t *testing.T) {
	b := newBed(t, Options{})
	one := b.backend(1, 0, "10.0.0.11")
	for n, c := range []struct {
		client, vip, other string
		head               int
	}{{client4, vip4, "192.0.2.2:80", 20}, {client6, vip6, "[2001:db8::2]:80", 48}} {
		b.vip(uint32(n), c.vip, protoTCP, []Backend{one})
		whole := b.packet(c.client, c.vip, &layers.TCP{SYN: true}, make([]byte, 100))
		small := fragments(whole, c.head+16, 1)
		b.expectUnchanged(small[0], "punt lb-headers")
		b.expectUnchanged(small[1], "drop lb-fragment")
		b.expectUnchanged(fragments(b.packet(c.client, c.other, &layers.TCP{SYN: true}, make([]byte, 100)), c.head+16, 1)[0], "pass other")
		enough := fragments(whole, c.head+24, 2)
		b.expectSent(enough[0], "fwd lb-new", one)
		b.expectSent(enough[1], "fwd lb-fragment", one)
		for cut := 1; cut < 48; cut++ {
			if frame := enough[0]; len(frame)-cut > 14+c.head {
				b.expectUnchanged(frame[:len(frame)-cut], "pass other") // the frame is shorter than its packet
			}
		}
	}
	// A fragment header without fragments (RFC 6946).
	atomic := fragment6(b.packet(client6, vip6, &layers.TCP{ACK: true}, []byte("data")), 0, false, 9)
	b.expectSent(atomic, "fwd lb-flow", one)
	if n, err := b.event(1, bpfobj.PipelineLbEventLB_EVENT_FRAGMENT); err != nil || n != 3 {
		t.Errorf("counted %d fragments, want 3, %v", n, err)
	}
}

// TestShortFragments wants last fragments of any length, down to one byte, to be sent though the Ethernet frame is padded.
func TestShortFragments(t *testing.T) {
	b := newBed(t, Options{})
	for n, to := range []string{"10.0.0.11", "fd00::12"} {
		backend := b.backend(uint32(n+1), uint32(n), to)
		addr := fmt.Sprintf("192.0.2.%d:53", n+1)
		b.vip(uint32(n), addr, protoUDP, []Backend{backend})
		for last := 1; last <= 9; last++ {
			parts := fragments(b.packet(client4, addr, &layers.UDP{}, make([]byte, 800-8+last)), 820, uint32(100*n+last))
			if len(parts) != 2 {
				t.Fatalf("%d fragments", len(parts))
			}
			b.run(parts[0])
			f := parts[1]
			for len(f) < 60 {
				f = append(f, 0)
			}
			if _, _, reason := b.run(f); reason != "fwd lb-fragment" {
				t.Errorf("to %s: a fragment of %d bytes left as %q", to, last, reason)
			}
		}
	}
}
