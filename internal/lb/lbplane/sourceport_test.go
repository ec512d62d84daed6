// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"culvert/internal/testbed"
)

// TestSourcePort wants all packets from one port of a client to a VIP of all ports to go to one backend: to any port, by TCP
// and UDP, whole and in fragments, and ICMP errors about them too.
func TestSourcePort(t *testing.T) {
	b := newBed(t, Options{RingSize: 251, Seed: [6]uint32{7, 6, 5, 4, 3, 2}})
	const addr = "192.0.2.1"
	r := rand.New(rand.NewPCG(8, 9))
	backends := make(map[string]bool)
	// clients returns how many of 50 client ports have one backend for all their packets.
	clients := func(sourcePort bool) (same int) {
		var ofTCP, ofUDP []Backend
		for n := range uint32(8) {
			backend := netip.AddrFrom4([4]byte{10, 0, 0, byte(11 + n)}).String()
			ofTCP, ofUDP = append(ofTCP, b.backend(n, 0, backend)), append(ofUDP, b.backend(100+n, 1, backend))
		}
		set := func(v *VIP) { v.SourcePort = sourcePort }
		b.vip(0, addr+":0", protoTCP, ofTCP, set)
		b.vip(1, addr+":0", protoUDP, ofUDP, set)
		for range 50 {
			client := randomClient(r, false)
			to := func() string {
				return netip.AddrPortFrom(netip.MustParseAddr(addr), uint16(1+r.IntN(65_000))).String()
			}
			seen := make(map[netip.Addr]bool)
			first := b.expectSent(b.packet(client.String(), to(), syn(), nil), "fwd lb-new", ofTCP...)
			seen[first.Addr], backends[first.Addr.String()] = true, true
			for range 4 {
				seen[b.expectSent(b.packet(client.String(), to(), syn(), nil), "fwd lb-new", ofTCP...).Addr] = true
				seen[b.expectSent(b.packet(client.String(), to(), &layers.UDP{}, nil), "fwd lb-new", ofUDP...).Addr] = true
				for n, f := range fragments(b.packet(client.String(), to(), &layers.UDP{}, make([]byte, 2000)), 1000, r.Uint32()) {
					seen[b.expectSent(f, []string{"fwd lb-new", "fwd lb-fragment", "fwd lb-fragment"}[n], ofUDP...).Addr] = true
				}
				quoted := b.packet(to(), client.String(), &layers.UDP{}, nil)[14:]
				copy(quoted[12:], []byte{192, 0, 2, 1})
				binary.BigEndian.PutUint16(quoted[10:], 0)
				binary.BigEndian.PutUint16(quoted[10:], ^testbed.OnesSum(quoted[:20]))
				icmp := b.icmp("198.51.100.9", addr, 3, 1, 0, quoted[:28])
				seen[b.expectSent(icmp, "fwd lb-icmp", ofUDP...).Addr] = true
			}
			if len(seen) == 1 {
				same++
			}
		}
		return same
	}
	if same := clients(true); same != 50 {
		t.Errorf("%d of 50 client ports have one backend", same)
	}
	if len(backends) != 8 {
		t.Errorf("%d of 8 backends have got packets", len(backends))
	}
	// A known flow stays where it is when the hash changes.
	client := netip.AddrPortFrom(netip.MustParseAddr("203.0.113.7"), 4000).String()
	known := b.packet(client, addr+":4001", syn(), nil)
	_, before, _ := b.run(known)
	b.must(b.plane.SetVIP(VIPKey{Addr: netip.MustParseAddr(addr), Proto: protoTCP}, VIP{}))
	if after := b.expect(known, "fwd lb-flow"); string(after) != string(before) {
		t.Errorf("the flow has moved:\n%x\n%x", before, after)
	}
	// With the default hash, the VIP's port and the protocol count too.
	if same := clients(false); same > 0 {
		t.Errorf("%d of 50 client ports have one backend, though the VIP's port counts", same)
	}
}
