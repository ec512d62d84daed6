// SPDX-License-Identifier: Apache-2.0

package decapplane

import (
	"bytes"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"culvert/internal/testbed"
)

// TestDecapKinds decapsulates all kinds of packets, with VLAN tags, padding, options of GUE and UDP checksums.
func TestDecapKinds(t *testing.T) {
	b := newBed(t, defaults())
	for _, s := range decapKinds() {
		for _, change := range []func(*tunnelled){
			func(*tunnelled) {},
			func(s *tunnelled) { s.vlan = 7 },
			func(s *tunnelled) { s.pad = 6 },
			func(s *tunnelled) { s.vlan, s.pad = 4094, 1 },
			func(s *tunnelled) { s.payload = 0 },
			func(s *tunnelled) { s.payload = 1 },
			func(s *tunnelled) { s.payload = 1400 },
			func(s *tunnelled) { s.words = 1 },
			func(s *tunnelled) { s.words, s.vlan = 31, 1 },
			func(s *tunnelled) { s.sum = true },
			func(s *tunnelled) { s.sum, s.payload, s.words = true, 1401, 5 },
		} {
			s := s
			change(&s)
			reason, action, out := b.run(t, s.frame())
			if action != testbed.XDPPass || reason != "decap "+s.kind[:min(len(s.kind), 4)] && reason != "decap "+s.kind[:3] {
				t.Errorf("%v: action %d, %s", s, action, reason)
			}
			if !bytes.Equal(out, s.want()) {
				t.Errorf("%v:\n%x, want\n%x", s, out, s.want())
			}
			wellFormed(t, s, out)
		}
	}
	b.countsAgree(t)
}

// wellFormed checks with gopacket that a frame is the inner packet and that its checksums are right.
func wellFormed(t *testing.T, s tunnelled, frame []byte) {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	if p.ErrorLayer() != nil {
		t.Errorf("%v: %v", s, p.ErrorLayer().Error())
		return
	}
	if u, ok := p.TransportLayer().(*layers.UDP); ok {
		if err := u.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
			t.Fatal(err)
		}
	}
	if errs, mismatches := p.VerifyChecksums(); errs != nil || len(mismatches) > 0 {
		t.Errorf("%v: checksums: %v %v", s, errs, mismatches)
	}
	src, dst := p.NetworkLayer().NetworkFlow().Endpoints()
	if src.String() != decapClient[s.inner].String() || dst.String() != decapVIP[s.inner].String() {
		t.Errorf("%v: from %v to %v", s, src, dst)
	}
	if u, ok := p.TransportLayer().(*layers.UDP); !ok || u.DstPort != 443 || len(u.Payload) != s.payload {
		t.Errorf("%v: %v", s, p)
	}
	if tag, ok := p.Layer(layers.LayerTypeDot1Q).(*layers.Dot1Q); ok != (s.vlan != 0) || ok && (tag.VLANIdentifier != s.vlan || tag.Priority != 3) {
		t.Errorf("%v: tag %v", s, tag)
	}
}

// countsAgree checks that every packet and byte was counted once.
func (b *bed) countsAgree(t testing.TB) {
	t.Helper()
	all, err := b.reasons()
	if err != nil {
		t.Fatal(err)
	}
	var sum uint64
	for _, r := range all {
		sum += r.Bytes
	}
	if got := b.counts(t); !maps.Equal(got, b.total) || sum != b.bytes {
		t.Errorf("counted %v and %d bytes, want %v and %d", got, sum, b.total, b.bytes)
	}
}

// TestDecapECN tests the table of RFC 6040, section 4.2. DSCP does not change, and the checksum of IPv4 stays right.
func TestDecapECN(t *testing.T) {
	const not, ect1, ect0, ce, drop = 0, 1, 2, 3, 99
	becomes := map[int][4]int{ // by inner ECN, and in each row by outer ECN: not, ect1, ect0, ce
		not:  {not, not, not, drop},
		ect1: {ect1, ect1, ect1, ce},
		ect0: {ect0, ect1, ect0, ce},
		ce:   {ce, ce, ce, ce},
	}
	b := newBed(t, defaults())
	for _, s := range decapKinds() {
		for inner, row := range becomes {
			for outer, want := range row {
				for _, dscp := range []uint8{0, 0x2e << 2} {
					s.innerTOS, s.outerTOS = dscp|uint8(inner), 0x0a<<2|uint8(outer)
					frame := s.frame()
					if want == drop {
						if reason, action, _ := b.run(t, frame); reason != "drop ecn" || action != testbed.XDPDrop {
							t.Errorf("%v: %s, action %d, want it dropped", s, reason, action)
						}
						continue
					}
					arrives := s
					arrives.innerTOS = dscp | uint8(want)
					b.decapsulates(t, s, frame, arrives.want())
				}
			}
		}
	}
	b.countsAgree(t)
}

// TestDecapECNKeepsErrors: an inner IPv4 checksum that is wrong stays wrong when ECN changes.
func TestDecapECNKeepsErrors(t *testing.T) {
	b := newBed(t, defaults())
	s := tunnelled{kind: "ipip", outer: 6, inner: 4, outerTOS: 3, innerTOS: 2, payload: 10}
	arrives := s
	arrives.innerTOS = 3
	frame, want := s.frame(), arrives.want()
	for _, x := range []struct {
		f  []byte
		at int
	}{{frame, 14 + 40 + 8}, {want, 14 + 8}} {
		x.f[x.at] ^= 0x10 // the inner TTL
	}
	b.decapsulates(t, s, frame, want)
}

// TestDecapSeveralBuffers decapsulates packets in several buffers. The program reads only the first one, but for the checksum of
// UDP.
func TestDecapSeveralBuffers(t *testing.T) {
	b := newBed(t, defaults())
	for _, s := range decapKinds() {
		for _, size := range []int{5000, 8900, 16001} {
			s.payload = size
			b.decapsulates(t, s, s.frame(), s.want())
			if s.kind != "ipip" {
				s.sum = true
				b.decapsulates(t, s, s.frame(), s.want())
				frame := s.frame()
				frame[len(frame)-1] ^= 1
				b.passes(t, s, frame, "pass checksum")
				s.sum = false
			}
		}
	}
	b.countsAgree(t)
}

// TestDecapPasses: packets that are not to be decapsulated are passed unchanged, each with its reason.
func TestDecapPasses(t *testing.T) {
	b := newBed(t, defaults())
	with := func(s tunnelled, change func(ip []byte)) []byte {
		f := s.frame()
		change(f[s.l2():])
		return f
	}
	// fix4 corrects the checksum of an IPv4 header.
	fix4 := func(ip []byte) {
		n := int(ip[0]&15) * 4
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], ^decapSum(0, ip[:n]))
	}
	ipip4 := tunnelled{kind: "ipip", outer: 4, inner: 4, payload: 50}
	ipip6 := tunnelled{kind: "ipip", outer: 6, inner: 6, payload: 50}
	gue4 := tunnelled{kind: "gue0", outer: 4, inner: 6, payload: 50}
	gue6 := tunnelled{kind: "gue1", outer: 6, inner: 4, payload: 50, sum: true}
	padded := func(s tunnelled) tunnelled { s.pad = 9; return s }
	extension := func(s tunnelled, kind byte, more []byte) []byte {
		return with6(s, kind, more)
	}
	for _, tt := range []struct {
		what, want string
		frame      []byte
	}{
		{"plain UDP", "pass other", ipip4.framed(layers.EthernetTypeIPv4, ipip4.packet())},
		{"plain UDP, IPv6", "pass other", ipip6.framed(layers.EthernetTypeIPv6, ipip6.packet())},
		{"ARP", "pass other", ipip4.framed(layers.EthernetTypeARP, make([]byte, 46))},
		{"two tags", "pass other", tunnelled{vlan: 7}.framed(layers.EthernetTypeDot1Q, append([]byte{0, 5, 8, 0}, ipip4.frame()[14:]...))},
		{"a tag of 802.1ad", "pass other", ipip4.framed(layers.EthernetTypeQinQ, append([]byte{0, 5, 8, 0}, ipip4.frame()[14:]...))},
		{"IPv6 said to be IPv4", "pass other", ipip4.framed(layers.EthernetTypeIPv4, ipip6.frame()[14:])},
		{"IPv4 said to be IPv6", "pass other", ipip4.framed(layers.EthernetTypeIPv6, ipip4.frame()[14:])},
		{"another UDP port", "pass other", tunnelled{kind: "gue1", outer: 4, inner: 4, port: 6081}.frame()},
		{"a later fragment of UDP", "pass other", with(gue4, func(ip []byte) { ip[7] = 1; fix4(ip) })},
		{"a later fragment of UDP, IPv6", "pass other", extension(gue6, 44, []byte{0, 0, 0, 8, 0, 0, 0, 1})},
		{"options in front of UDP, IPv6", "pass other",
			extension(tunnelled{kind: "gue1", outer: 6, inner: 4, port: 53}, 60, make([]byte, 8))},
		{"an unknown extension header", "pass other", extension(ipip6, 140, make([]byte, 8))},

		{"a fragment", "pass fragment", with(ipip4, func(ip []byte) { ip[6] = 0x20; fix4(ip) })},
		{"the last fragment", "pass fragment", with(ipip4, func(ip []byte) { ip[7] = 9; fix4(ip) })},
		{"the first fragment of GUE", "pass fragment", with(gue4, func(ip []byte) { ip[6] = 0x20; fix4(ip) })},
		{"a fragment, IPv6", "pass fragment", extension(ipip6, 44, []byte{0, 0, 0, 9, 0, 0, 0, 1})},
		{"the first fragment of GUE, IPv6", "pass fragment", extension(gue6, 44, []byte{0, 0, 0, 1, 0, 0, 0, 1})},

		{"options", "pass options", withOptions4(ipip4)},
		{"options, GUE", "pass options", withOptions4(gue4)},
		{"hop-by-hop options", "pass options", extension(ipip6, 0, []byte{0, 0, 1, 4, 0, 0, 0, 0})},
		{"an encapsulation limit", "pass options", extension(ipip6, 60, []byte{0, 0, 4, 1, 4, 1, 0, 0})},
		{"long options, GUE", "pass options", extension(gue6, 60, append([]byte{0, 1, 1, 12}, make([]byte, 12)...))},

		{"wrong checksum", "pass checksum", with(ipip4, func(ip []byte) { ip[8] ^= 1 })},
		{"wrong checksum, GUE", "pass checksum", with(gue4, func(ip []byte) { ip[10] ^= 1 })},
		{"wrong checksum of UDP", "pass checksum", with(gue6, func(ip []byte) { ip[46] ^= 1 })},
		{"wrong last byte in UDP", "pass checksum", with(gue6, func(ip []byte) { ip[len(ip)-1] ^= 1 })},

		{"outer length beyond the frame", "pass malformed", with(ipip4, func(ip []byte) { ip[3]++; fix4(ip) })},
		{"outer length below its header", "pass malformed", with(ipip4, func(ip []byte) { ip[2], ip[3] = 0, 19; fix4(ip) })},
		{"outer length beyond the frame, IPv6", "pass malformed", with(ipip6, func(ip []byte) { ip[5]++ })},
		{"outer length 0, IPv6", "pass malformed", with(ipip6, func(ip []byte) { ip[4], ip[5] = 0, 0 })},
		{"UDP length beyond the packet", "pass malformed", with(gue4, func(ip []byte) { ip[25]++ })},
		{"UDP length below its header", "pass malformed", with(gue4, func(ip []byte) { ip[24], ip[25] = 0, 7 })},
		{"UDP without payload", "pass malformed", with(gue4, func(ip []byte) { ip[24], ip[25] = 0, 8 })},
		{"inner length beyond the outer one", "pass malformed", with(ipip4, func(ip []byte) { ip[23]++ })},
		{"inner length into padding", "pass malformed", with(padded(ipip4), func(ip []byte) { ip[23]++ })},
		{"inner length into padding, IPv6", "pass malformed", with(padded(ipip6), func(ip []byte) { ip[45]++ })},
		{"UDP length into padding", "pass malformed", with(padded(gue4), func(ip []byte) { ip[25]++ })},
		{"inner length beyond the UDP one", "pass malformed", with(gue4, func(ip []byte) { ip[25]-- })},
		{"inner length below its header", "pass malformed", with(ipip4, func(ip []byte) { ip[22], ip[23] = 0, 19 })},
		{"inner length beyond the outer one, IPv6", "pass malformed", with(ipip6, func(ip []byte) { ip[45]++ })},
		{"inner of another version", "pass malformed", with(ipip4, func(ip []byte) { ip[20] = 0x65 })},
		{"inner of another version, IPv6", "pass malformed", with(ipip6, func(ip []byte) { ip[40] = 0x45 })},
		{"inner header too short", "pass malformed", with(ipip4, func(ip []byte) { ip[20] = 0x44 })},
		{"options of GUE beyond the packet", "pass malformed", with(gue4, func(ip []byte) { ip[28] = 31 })},

		{"GUE control message", "pass gue", with(gue4, func(ip []byte) { ip[28] = 0x20 })},
		{"GUE of another protocol", "pass gue", with(gue4, func(ip []byte) { ip[29] = 6 })},
		{"GUE with flags", "pass gue", with(gue4, func(ip []byte) { ip[31] = 1 })},
		{"GUE variant 1 of version 5", "pass gue", with(gue6, func(ip []byte) { ip[48] = 0x50 })},
		{"GUE variant 2", "pass gue", with(gue4, func(ip []byte) { ip[28] = 0x80 })},
		{"GUE variant 3", "pass gue", with(gue4, func(ip []byte) { ip[28] = 0xc0 })},

		{"to another host", "pass not-local", with(ipip4, func(ip []byte) { ip[19]++; fix4(ip) })},
		{"to another host, IPv6", "pass not-local", with(ipip6, func(ip []byte) { ip[39]++ })},
		{"to another MAC", "pass other", func() []byte { f := ipip4.frame(); f[5]++; return f }()},
		{"to all MACs", "pass other", append(bytes.Repeat([]byte{0xff}, 6), ipip4.frame()[6:]...)},
	} {
		b.passes(t, tt.what, tt.frame, tt.want)
	}
	b.countsAgree(t)
}

// withOptions4 adds 4 bytes of options to the outer IPv4 header.
func withOptions4(s tunnelled) []byte {
	ip := s.frame()[14:]
	ip = slices.Concat(ip[:20], []byte{1, 1, 1, 0}, ip[20:])
	ip[0] = 0x46
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^decapSum(0, ip[:24]))
	return s.ethernet(ip)
}

// with6 inserts an extension header after the outer IPv6 header.
func with6(s tunnelled, kind byte, header []byte) []byte {
	ip := s.frame()[14:]
	header = bytes.Clone(header)
	header[0] = ip[6]
	ip = slices.Concat(ip[:40], header, ip[40:])
	ip[6] = kind
	binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
	return s.ethernet(ip)
}

// TestDecapSets: packets with other sources or inner destinations than those allowed are passed.
func TestDecapSets(t *testing.T) {
	o := defaults()
	o.GUEPort = 7777
	o.From = []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16"), netip.MustParsePrefix("fd00:200::/64"), netip.MustParsePrefix("10.200.0.0/16")}
	o.VIPs = []netip.Addr{decapVIP[4], decapVIP[6], decapVIP[4]}
	b := newBed(t, o)
	for _, s := range decapKinds() {
		if s.kind != "ipip" {
			b.passes(t, s, s.frame(), "pass other")
			s.port = 7777
		}
		b.decapsulates(t, s, s.frame(), s.want())

		inner := s.packet()
		inner[map[int]int{4: 19, 6: 39}[s.inner]] ^= 4 // of the destination; nobody looks at its checksum
		b.passes(t, s, s.around(inner), "pass vip")

		was := decapBalancer[s.outer]
		decapBalancer[s.outer] = map[int]netip.Addr{4: netip.MustParseAddr("10.201.3.7"), 6: netip.MustParseAddr("fd00:200:0:1::307")}[s.outer]
		frame := s.frame()
		decapBalancer[s.outer] = was
		b.passes(t, s, frame, "pass source")
	}
	b.countsAgree(t)
}

// TestDecapCutAnywhere: a truncated packet is passed unchanged, wherever it is cut.
func TestDecapCutAnywhere(t *testing.T) {
	b := newBed(t, defaults())
	for _, s := range decapKinds() {
		s.payload, s.words, s.vlan = 20, 2, 3
		frame := s.frame()
		for n := 14; n < len(frame); n++ { // the kernel refuses test runs with shorter frames
			reason, action, out := b.run(t, frame[:n])
			if reason != "pass other" && reason != "pass malformed" || action != testbed.XDPPass || !bytes.Equal(out, frame[:n]) {
				t.Errorf("%v cut at %d: %s, action %d, %x", s, n, reason, action, out)
			}
		}
	}
	b.countsAgree(t)
}
