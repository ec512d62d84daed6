// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// randomClient returns a random unicast address and port.
func randomClient(r *rand.Rand, v6 bool) netip.AddrPort {
	var b [16]byte
	for n := range b {
		b[n] = byte(r.Uint32())
	}
	b[0] = 0x20 // neither broadcast nor multicast
	addr := netip.AddrFrom16(b)
	if !v6 {
		addr = netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrPortFrom(addr, uint16(1+r.IntN(65535)))
}

// TestHashes wants the programs and this package to compute the same positions of clients in the ring and in the flow table.
func TestHashes(t *testing.T) {
	const ring, clients = 251, 400
	b := newBed(t, Options{RingSize: ring, Flows: 1 << 16, Seed: [6]uint32{1, 1 << 31, 3, 0xffffffff, 5, 6}})
	o := b.plane.Options()
	tests := []struct {
		vip      string
		proto    uint8
		v        VIP
		allPorts bool
	}{
		{vip: "192.0.2.1:80", proto: 6},
		{vip: "192.0.2.1:80", proto: 17},
		{vip: "192.0.2.2:443", proto: 6, v: VIP{Source: true}},
		{vip: "192.0.2.3:0", proto: 17, allPorts: true},
		{vip: "[2001:db8::1]:80", proto: 6},
		{vip: "[2001:db8::1]:53", proto: 17, v: VIP{Source: true}},
		{vip: "[2001:db8::2]:0", proto: 6, allPorts: true},
		{vip: "192.0.2.4:0", proto: 6, v: VIP{SourcePort: true}, allPorts: true},
		{vip: "[2001:db8::3]:0", proto: 17, v: VIP{SourcePort: true}, allPorts: true},
	}
	r := rand.New(rand.NewPCG(1, 2))
	for number, tt := range tests {
		vip := uint32(number)
		var backends []Backend
		for n := range uint32(ring) { // each position has a backend of its own
			backends = append(backends, b.backend(vip*ring+n, vip, fmt.Sprintf("10.1.%d.%d", number, n)))
		}
		b.vip(vip, tt.vip, tt.proto, backends, func(v *VIP) { v.Source, v.SourcePort = tt.v.Source, tt.v.SourcePort })
		for range clients {
			to := netip.MustParseAddrPort(tt.vip)
			client := randomClient(r, to.Addr().Is6())
			if tt.allPorts {
				to = netip.AddrPortFrom(to.Addr(), uint16(1+r.IntN(65535)))
			}
			var transport gopacket.SerializableLayer = &layers.TCP{SYN: true}
			if tt.proto == 17 {
				transport = &layers.UDP{}
			}
			_, out, err := b.inst.TestRun(b.packet(client.String(), to.String(), transport, nil), "lb0")
			b.must(err)
			_, dst, _ := outer(t, out)
			pos := o.Position(tt.v, tt.proto, client, to.Port())
			if dst != backends[pos].Addr {
				t.Fatalf("%v to %v/%d was sent to %v, not to position %d: %v", client, to, tt.proto, dst, pos, backends[pos].Addr)
			}
			f, ok, err := b.plane.FindFlow(vip, client, to.Port())
			b.must(err)
			want := Flow{Client: client, Port: to.Port(), VIP: vip, Backend: backends[pos].ID, State: "new", Idle: f.Idle}
			if !ok || f != want {
				t.Fatalf("the flow table has %+v, %v, want %+v", f, ok, want)
			}
			if _, ok, err := b.plane.FindFlow(vip, client, to.Port()+1); ok || err != nil {
				t.Fatalf("a flow to a port that nothing was sent to: %v, %v", ok, err)
			}
		}
	}
}

// TestPosition pins positions: machines with different versions must agree on them.
func TestPosition(t *testing.T) {
	o := Options{RingSize: DefaultRingSize, Seed: [6]uint32{1, 2, 3, 4, 5, 6}}
	for _, tt := range []struct {
		client string
		port   uint16
		proto  uint8
		v      VIP
		want   uint32
	}{
		{"203.0.113.7:1234", 80, 6, VIP{}, 1167},
		{"203.0.113.7:1234", 80, 17, VIP{}, 37692},
		{"203.0.113.7:1234", 80, 6, VIP{Source: true}, 65358},
		{"[2001:db8::7]:1234", 80, 6, VIP{}, 40390},
		{"203.0.113.7:1234", 80, 6, VIP{SourcePort: true}, 47764},
		{"203.0.113.7:1234", 443, 17, VIP{SourcePort: true}, 47764},
	} {
		if got := o.Position(tt.v, tt.proto, netip.MustParseAddrPort(tt.client), tt.port); got != tt.want {
			t.Errorf("%s to port %d of protocol %d, %+v: position %d, want %d", tt.client, tt.port, tt.proto, tt.v, got, tt.want)
		}
	}
}
