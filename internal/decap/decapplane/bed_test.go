// SPDX-License-Identifier: Apache-2.0

package decapplane

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"culvert/internal/testbed"
)

// The addresses in the packets of these tests, by IP version.
var (
	decapMAC      = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	decapBalancer = map[int]netip.Addr{4: netip.MustParseAddr("10.200.3.7"), 6: netip.MustParseAddr("fd00:200::307")}
	decapBackend  = map[int]netip.Addr{4: netip.MustParseAddr("10.0.0.11"), 6: netip.MustParseAddr("fd00::11")}
	decapClient   = map[int]netip.Addr{4: netip.MustParseAddr("198.51.100.9"), 6: netip.MustParseAddr("2001:db8:9::9")}
	decapVIP      = map[int]netip.Addr{4: netip.MustParseAddr("192.0.2.1"), 6: netip.MustParseAddr("2001:db8::1")}
)

// defaults returns options that decapsulate all packets to the backend.
func defaults() Options {
	return Options{GUEPort: DefaultGUEPort, Local: []netip.Addr{decapBackend[4], decapBackend[6]}}
}

// tunnelled describes a packet in a tunnel.
type tunnelled struct {
	kind         string // ipip, gue0, gue1
	outer, inner int    // IP versions
	vlan         uint16
	outerTOS     uint8
	innerTOS     uint8
	payload      int    // of the inner UDP packet, bytes
	words        int    // of options of GUE variant 0
	sum          bool   // the outer UDP has a checksum
	port         uint16 // of GUE; 0 stands for the default
	pad          int    // bytes behind the packet
}

func (s tunnelled) String() string {
	return fmt.Sprintf("%s %din%d, vlan %d, tos %#x over %#x, payload %d, options %d words, sum %v, padding %d",
		s.kind, s.inner, s.outer, s.vlan, s.innerTOS, s.outerTOS, s.payload, s.words, s.sum, s.pad)
}

// decapKinds returns one packet of each kind of encapsulation, for all pairs of IP versions.
func decapKinds() (all []tunnelled) {
	for _, kind := range []string{"ipip", "gue0", "gue1"} {
		for _, outer := range []int{4, 6} {
			for _, inner := range []int{4, 6} {
				all = append(all, tunnelled{kind: kind, outer: outer, inner: inner, payload: 100})
			}
		}
	}
	return all
}

var decapTypes = map[int]layers.EthernetType{4: layers.EthernetTypeIPv4, 6: layers.EthernetTypeIPv6}

// decapIP makes an IP packet.
func decapIP(version int, proto layers.IPProtocol, tos uint8, src, dst netip.Addr, payload []byte) []byte {
	var ip gopacket.SerializableLayer = &layers.IPv4{
		Version: 4, TTL: 61, TOS: tos, Protocol: proto, Flags: layers.IPv4DontFragment, SrcIP: src.AsSlice(), DstIP: dst.AsSlice(),
	}
	if version == 6 {
		ip = &layers.IPv6{
			Version: 6, HopLimit: 61, TrafficClass: tos, FlowLabel: 0x54321, NextHeader: proto, SrcIP: src.AsSlice(), DstIP: dst.AsSlice(),
		}
	}
	return decapSerialize(ip, gopacket.Payload(payload))
}

func decapSerialize(all ...gopacket.SerializableLayer) []byte {
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...); err != nil {
		panic(err)
	}
	return bytes.Clone(b.Bytes())
}

// decapUDP makes a UDP packet between two addresses.
func decapUDP(version int, tos uint8, src, dst netip.AddrPort, payload []byte, sum bool) []byte {
	udp := &layers.UDP{SrcPort: layers.UDPPort(src.Port()), DstPort: layers.UDPPort(dst.Port())}
	var ip gopacket.NetworkLayer = &layers.IPv4{Protocol: layers.IPProtocolUDP, SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice()}
	if version == 6 {
		ip = &layers.IPv6{NextHeader: layers.IPProtocolUDP, SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice()}
	}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		panic(err)
	}
	b := decapSerialize(udp, gopacket.Payload(payload))
	if !sum {
		b[6], b[7] = 0, 0
	}
	return decapIP(version, layers.IPProtocolUDP, tos, src.Addr(), dst.Addr(), b)
}

// packet returns the inner packet.
func (s tunnelled) packet() []byte {
	payload := bytes.Repeat([]byte("0123456789abcdef"), s.payload/16+1)[:s.payload]
	return decapUDP(s.inner, s.innerTOS, netip.AddrPortFrom(decapClient[s.inner], 40000),
		netip.AddrPortFrom(decapVIP[s.inner], 443), payload, true)
}

// frame returns the encapsulated packet as the backend receives it.
func (s tunnelled) frame() []byte { return s.around(s.packet()) }

// around encapsulates an inner packet.
func (s tunnelled) around(inner []byte) []byte {
	src, dst := decapBalancer[s.outer], decapBackend[s.outer]
	proto := map[int]layers.IPProtocol{4: layers.IPProtocolIPv4, 6: layers.IPProtocolIPv6}[s.inner]
	var ip []byte
	switch s.kind {
	case "ipip":
		ip = decapIP(s.outer, proto, s.outerTOS, src, dst, inner)
	case "gue0":
		head := append([]byte{byte(s.words), byte(proto), 0, 0}, bytes.Repeat([]byte{0xee}, 4*s.words)...)
		ip = s.gue(src, dst, append(head, inner...))
	case "gue1":
		ip = s.gue(src, dst, inner)
	}
	return s.ethernet(ip)
}

func (s tunnelled) gue(src, dst netip.Addr, payload []byte) []byte {
	port := s.port
	if port == 0 {
		port = DefaultGUEPort
	}
	return decapUDP(s.outer, s.outerTOS, netip.AddrPortFrom(src, 0xc123), netip.AddrPortFrom(dst, port), payload, s.sum)
}

// ethernet puts a packet of the outer version into a frame.
func (s tunnelled) ethernet(ip []byte) []byte { return s.framed(decapTypes[s.outer], ip) }

func (s tunnelled) framed(kind layers.EthernetType, ip []byte) []byte {
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}, DstMAC: decapMAC, EthernetType: kind}
	all := []gopacket.SerializableLayer{eth}
	if s.vlan != 0 {
		eth.EthernetType = layers.EthernetTypeDot1Q
		all = append(all, &layers.Dot1Q{VLANIdentifier: s.vlan, Priority: 3, Type: kind})
	}
	// gopacket pads frames of less than 60 bytes by itself.
	frame := decapSerialize(append(all, gopacket.Payload(ip))...)[:s.l2()+len(ip)]
	return append(frame, bytes.Repeat([]byte{0xaa}, s.pad)...)
}

func (s tunnelled) l2() int {
	if s.vlan != 0 {
		return 18
	}
	return 14
}

// want returns the decapsulated frame: the inner packet in a frame of its own, with the bytes behind the outer packet.
func (s tunnelled) want() []byte { return s.framed(decapTypes[s.inner], s.packet()) }

// bed is a loaded program.
type bed struct {
	*program
	total map[string]uint64 // wanted packets by reason
	bytes uint64            // wanted bytes of all reasons together
}

func newBed(t testing.TB, o Options) *bed {
	t.Helper()
	p, err := load(&net.Interface{Name: "test", HardwareAddr: decapMAC}, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return &bed{program: p, total: make(map[string]uint64)}
}

// run runs a frame through the program. It returns the reason that was counted, with its verdict, the XDP action and the frame.
func (b *bed) run(t testing.TB, frame []byte) (reason string, action uint32, out []byte) {
	t.Helper()
	before := b.counts(t)
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
	action, err := b.prog.Run(&opts)
	if err != nil {
		t.Fatalf("%d bytes: %v", len(frame), err)
	}
	for name, n := range b.counts(t) {
		if n != before[name] {
			reason += name
		}
	}
	b.total[reason]++
	b.bytes += uint64(len(frame))
	return reason, action, opts.DataOut
}

func (b *bed) counts(t testing.TB) map[string]uint64 {
	t.Helper()
	all, err := b.reasons()
	if err != nil {
		t.Fatal(err)
	}
	counts := make(map[string]uint64)
	for _, r := range all {
		counts[r.Verdict+" "+r.Name] = r.Packets
	}
	return counts
}

// passes checks that a frame is passed unchanged with a reason.
func (b *bed) passes(t testing.TB, what any, frame []byte, want string) {
	t.Helper()
	reason, action, out := b.run(t, frame)
	if reason != want || action != testbed.XDPPass || !bytes.Equal(out, frame) {
		t.Errorf("%v: %q, action %d, changed %v; want %q and unchanged to the kernel\n%x\n%x", what, reason, action,
			!bytes.Equal(out, frame), want, frame, out)
	}
}

// decapsulates checks that a frame is decapsulated to want.
func (b *bed) decapsulates(t testing.TB, what any, frame, want []byte) {
	t.Helper()
	reason, action, out := b.run(t, frame)
	if reason != "decap ipip" && reason != "decap gue" || action != testbed.XDPPass || !bytes.Equal(out, want) {
		t.Errorf("%v: %q, action %d\n%x, want\n%x", what, reason, action, out, want)
	}
}
