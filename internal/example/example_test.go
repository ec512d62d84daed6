// SPDX-License-Identifier: Apache-2.0

//go:build example

package example_test

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// What clients send to, and where it goes instead. The kernel's tables, as the stage behind knows them, have a way for each
// of the networks below, so that the way shows which destination was looked up.
var (
	service4 = netip.MustParseAddrPort("1.0.0.10:80")
	service6 = netip.MustParseAddrPort("[2001::10]:80")
	clients4 = netip.MustParseAddrPort("1.0.9.1:4000")
	clients6 = netip.MustParseAddrPort("[2009::1]:4000")
)

// Networks by what becomes of packets to them.
var networks = map[string]struct{ v4, v6 byte }{
	"own":       {0, 1}, // that of the services: by interface 3
	"forward":   {1, 2}, // by interface 2
	"blackhole": {2, 3},
	"resolve":   {3, 4},
	"vlan":      {4, 5}, // by interface 2, tagged
}

// target returns the address in a network that packets to a service are sent on to, port 8080.
func target(network string, v6 bool) netip.AddrPort {
	n := networks[network]
	if v6 {
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte{0: 0x20, 1: n.v6, 15: 0x77}), 8080)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{1, 0, n.v4, 0x77}), 8080)
}

const vlanOut = 7

// packet is one of the table below, before it is a frame.
type packet struct {
	src, dst netip.AddrPort
	udp      bool
	noSum    bool // UDP without a checksum
	ttl      uint8
	vlan     uint16
	fragment bool
	payload  []byte
	out      bool // with the MAC addresses that it leaves with
}

// frame builds it, with right checksums, in gopacket and so without any of the code that is tested.
func (p packet) frame(t *testing.T) []byte {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: peerMAC, DstMAC: ownMAC}
	if p.out {
		eth.SrcMAC, eth.DstMAC = ownMAC, gatewayMAC
	}
	l := []gopacket.SerializableLayer{eth}
	ttl := p.ttl
	if ttl == 0 {
		ttl = 64
	}
	var network gopacket.NetworkLayer
	var ip gopacket.SerializableLayer
	proto := layers.IPProtocolTCP
	if p.udp {
		proto = layers.IPProtocolUDP
	}
	kind := layers.EthernetTypeIPv4
	if p.src.Addr().Is4() {
		h := &layers.IPv4{Version: 4, TTL: ttl, Protocol: proto, SrcIP: p.src.Addr().AsSlice(), DstIP: p.dst.Addr().AsSlice(), Id: 1}
		if p.fragment {
			h.Flags = layers.IPv4MoreFragments
		}
		network, ip = h, h
	} else {
		kind = layers.EthernetTypeIPv6
		h := &layers.IPv6{Version: 6, HopLimit: ttl, NextHeader: proto, SrcIP: p.src.Addr().AsSlice(), DstIP: p.dst.Addr().AsSlice()}
		network, ip = h, h
	}
	eth.EthernetType = kind
	if p.vlan != 0 {
		eth.EthernetType = layers.EthernetTypeDot1Q
		l = append(l, &layers.Dot1Q{VLANIdentifier: p.vlan, Type: kind})
	}
	l = append(l, ip)
	if p.udp {
		h := &layers.UDP{SrcPort: layers.UDPPort(p.src.Port()), DstPort: layers.UDPPort(p.dst.Port())}
		must(t, h.SetNetworkLayerForChecksum(network))
		l = append(l, h)
	} else {
		h := &layers.TCP{SrcPort: layers.TCPPort(p.src.Port()), DstPort: layers.TCPPort(p.dst.Port()), ACK: true, Window: 1000, Seq: 5}
		must(t, h.SetNetworkLayerForChecksum(network))
		l = append(l, h)
	}
	b := gopacket.NewSerializeBuffer()
	must(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, append(l, gopacket.Payload(p.payload))...))
	frame := bytes.Clone(b.Bytes())
	if p.noSum {
		at := len(frame) - len(p.payload) - 2
		frame[at], frame[at+1] = 0, 0
	}
	return frame
}

func TestRewrite(t *testing.T) {
	b := newBed(t)
	for _, c := range []struct {
		name    string
		network string // that the service is translated to
		in      packet // its source and destination follow from the row
		reason  string
		change  func(*packet) // from the packet as it came, translated, to what leaves
	}{
		{name: "a later stage forwards by the new destination", network: "forward", reason: "FWD_ROUTE"},
		{name: "and tags the frame", network: "vlan", reason: "FWD_ROUTE", change: func(p *packet) { p.vlan = vlanOut }},
		{name: "long payload", network: "forward", in: packet{payload: make([]byte, 1201)}, reason: "FWD_ROUTE"},
		{name: "a later stage drops by the new destination", network: "blackhole", reason: "DROP_ROUTE_BLACKHOLE"},
		{name: "a later stage punts by the new destination", network: "resolve", reason: "PUNT_ROUTE_NEIGHBOR"},
		{name: "a later stage punts for another cause", network: "forward", in: packet{ttl: 1}, reason: "PUNT_ROUTE_TTL"},
		{name: "a fragment has no ports", network: "forward", in: packet{fragment: true}, reason: "PUNT_EXAMPLE_HEADERS"},
	} {
		for _, v6 := range []bool{false, true} {
			for _, transport := range []string{"tcp", "udp", "udp without a checksum"} {
				in := c.in
				if in.payload == nil {
					in.payload = make([]byte, 20) // with less the wire fills the frame up
				}
				in.udp, in.noSum = transport != "tcp", strings.Contains(transport, "without")
				if v6 && (in.noSum || in.fragment) { // not of IPv6
					continue
				}
				in.src, in.dst = clients4, service4
				if v6 {
					in.src, in.dst = clients6, service6
				}
				t.Run(c.name+"/"+family(v6)+" "+transport, func(t *testing.T) {
					b.translate(t, in, target(c.network, v6))
					want := in.frame(t)
					if strings.HasPrefix(c.reason, "FWD_") {
						out := in
						out.dst, out.ttl, out.out = target(c.network, v6), 63, true
						if c.change != nil {
							c.change(&out)
						}
						want = out.frame(t)
					}
					b.expect(t, b.rx, in.frame(t), c.reason, want)
				})
			}
		}
	}
}

// Packets to nobody's service go by their own destination.
func TestOthersAreUntouched(t *testing.T) {
	b := newBed(t)
	b.translate(t, packet{dst: service4}, target("forward", false))
	for name, dst := range map[string]netip.AddrPort{
		"another port":    netip.AddrPortFrom(service4.Addr(), 81),
		"another address": netip.MustParseAddrPort("1.0.0.11:80"),
	} {
		in := packet{src: clients4, dst: dst}
		out := in
		out.ttl, out.out = 63, true
		t.Run(name, func(t *testing.T) { b.expect(t, b.rx, in.frame(t), "FWD_ROUTE", out.frame(t)) })
	}
	// The transport is part of what a service is.
	in := packet{src: clients4, dst: service4, udp: true}
	out := in
	out.ttl, out.out = 63, true
	b.expect(t, b.rx, in.frame(t), "FWD_ROUTE", out.frame(t))
}

var packets = flag.Int("packets", 6000, "how many packets have their checksums patched")

// Checksums are patched: every sum comes up, those that are 0 and 0xffff among them.
func TestChecksums(t *testing.T) {
	b := newBed(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range *packets {
		v6 := n%2 == 1
		in := packet{src: clients4, dst: service4, udp: n%3 != 0, payload: make([]byte, 20+rng.IntN(40))}
		to := target("forward", false)
		if v6 {
			in.src, in.dst, to = clients6, service6, target("forward", true)
		}
		for i := range in.payload {
			in.payload[i] = byte(rng.Uint32())
		}
		in.src = netip.AddrPortFrom(in.src.Addr(), uint16(rng.Uint32()))
		to = netip.AddrPortFrom(to.Addr(), uint16(rng.Uint32()))
		if n%5 == 0 { // a sum of 0 before, and so on the wire 0xffff for UDP
			in.payload = append(make([]byte, 2), in.payload[:len(in.payload)/2*2]...)
			frame := in.frame(t)
			sum := checksumAt(frame, in)
			in.payload[0], in.payload[1] = frame[sum], frame[sum+1]
		}
		b.translate(t, in, to)
		out := in
		out.dst, out.ttl, out.out = to, 63, true
		b.expect(t, b.rx, in.frame(t), "FWD_ROUTE", out.frame(t))
		if t.Failed() {
			t.Fatalf("packet %d, %s to %s", n, in.src, to)
		}
	}
}

// checksumAt is where the checksum of the transport stands.
func checksumAt(frame []byte, p packet) int {
	transport := len(frame) - len(p.payload)
	if p.udp {
		return transport - 2
	}
	return transport - 4
}

// tunnelled puts an outer header in front of the packet in a frame.
func tunnelled(t *testing.T, frame []byte, to netip.Addr) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	must(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: peerMAC, DstMAC: ownMAC, EthernetType: layers.EthernetTypeIPv4},
		&layers.IPv4{Version: 4, TTL: 9, Protocol: layers.IPProtocolIPv4, SrcIP: net.IP{9, 9, 9, 9}, DstIP: to.AsSlice()},
		gopacket.Payload(frame[14:])))
	return bytes.Clone(b.Bytes())
}

// A program in front takes a header off, and the stages behind it forward, punt and drop what was inside.
func TestProgramInFront(t *testing.T) {
	b := newBed(t)
	in := packet{src: clients4, dst: service4, payload: make([]byte, 20)}
	inner := in.frame(t)
	out := in
	out.ttl, out.out = 63, true
	translated := func(network string) func(*testing.T) {
		return func(t *testing.T) { b.translate(t, in, target(network, false)) }
	}
	out.dst = target("forward", false)
	own := out
	own.dst = service4
	for _, c := range []struct {
		name   string
		setup  func(*testing.T)
		frame  []byte
		reason string
		want   []byte
	}{
		{"what was inside is forwarded", nil, tunnelled(t, inner, tunnelEnd), "FWD_ROUTE", own.frame(t)},
		{"what was inside is translated and forwarded", translated("forward"), tunnelled(t, inner, tunnelEnd), "FWD_ROUTE", out.frame(t)},
		{"what was inside is punted as it was inside", translated("resolve"), tunnelled(t, inner, tunnelEnd), "PUNT_ROUTE_NEIGHBOR", inner},
		{"what was inside is dropped", translated("blackhole"), tunnelled(t, inner, tunnelEnd), "DROP_ROUTE_BLACKHOLE", inner},
		{"nothing whole is inside", nil, tunnelled(t, inner[:30], tunnelEnd), "DROP_EXAMPLE_TUNNEL", tunnelled(t, inner[:30], tunnelEnd)},
		{"no tunnel", translated("forward"), inner, "FWD_ROUTE", out.frame(t)},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.forget(t)
			if c.setup != nil {
				c.setup(t)
			}
			b.expect(t, b.front, c.frame, c.reason, c.want)
		})
	}
}
