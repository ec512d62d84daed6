// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"culvert/internal/bpfobj"
	"culvert/internal/testbed"
)

// icmp builds a frame of ICMP or ICMPv6 between two addresses. word is the second word of the ICMP header.
func (b *bed) icmp(from, to string, typ, code byte, word uint32, rest []byte) []byte {
	b.t.Helper()
	src, dst := netip.MustParseAddr(from), netip.MustParseAddr(to)
	body := binary.BigEndian.AppendUint32([]byte{typ, code, 0, 0}, word)
	body = append(body, rest...)
	f := append(append(bytes.Clone(b.in.HardwareAddr), clientMAC...), 0x08, 0x00)
	if src.Is4() {
		binary.BigEndian.PutUint16(body[2:], ^testbed.OnesSum(body))
		ip := []byte{0x45, 0x2c, 0, 0, 0x12, 0x34, 0, 0, 57, 1, 0, 0}
		binary.BigEndian.PutUint16(ip[2:], uint16(20+len(body)))
		ip = append(append(ip, src.AsSlice()...), dst.AsSlice()...)
		binary.BigEndian.PutUint16(ip[10:], ^testbed.OnesSum(ip))
		return append(append(f, ip...), body...)
	}
	f[12], f[13] = 0x86, 0xdd
	ip := binary.BigEndian.AppendUint16([]byte{0x62, 0xc1, 0x23, 0x45}, uint16(len(body)))
	ip = append(append(append(ip, 58, 57), src.AsSlice()...), dst.AsSlice()...)
	binary.BigEndian.PutUint16(body[2:], ^testbed.OnesSum(ip[8:40], ip[4:6], []byte{0, 58}, body))
	return append(append(f, ip...), body...)
}

// TestEcho sends echo requests to VIPs, and packets that are almost such requests.
func TestEcho(t *testing.T) {
	b := newBed(t, Options{})
	backend := b.backend(1, 0, "10.0.0.11")
	b.vip(0, vip4, protoTCP, []Backend{backend})
	b.vip(1, vip6, protoUDP, []Backend{backend})
	for _, c := range []struct {
		from, to, none string
		ask, answer    byte
		badSources     []string
		fragments      map[string]func(frame []byte) []byte
	}{
		{
			"203.0.113.7", "192.0.2.1", "192.0.2.2", 8, 0,
			[]string{"0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255"},
			map[string]func([]byte) []byte{
				"first fragment": func(f []byte) []byte { return fragment4(f, 0, true) },
				"last fragment":  func(f []byte) []byte { return fragment4(f, 8, false) },
			},
		},
		{
			"2001:db8:7::7", "2001:db8::1", "2001:db8::2", 128, 129,
			[]string{"::", "::1", "ff02::1"},
			map[string]func([]byte) []byte{
				"first fragment": func(f []byte) []byte { return fragment6(f, 0, true, 1) },
			},
		},
	} {
		data := bytes.Repeat([]byte("pinging"), 30)
		// The first bytes of the data bring the checksum to each edge case of its arithmetic.
		for _, first := range []uint16{0, 1, 0x07ff, 0x0800, 0x0801, 0xf7fe, 0xf7ff, 0xf800, 0xfffe, 0xffff, 0x1234} {
			for _, size := range []int{0, 2, 13, 56, 210} {
				if size >= 2 {
					binary.BigEndian.PutUint16(data, first)
				}
				in := b.icmp(c.from, c.to, c.ask, 0, uint32(first)<<16|7, data[:size])
				for _, frame := range [][]byte{in, tagged(in, 0x6009)} {
					action, out, reason := b.run(frame)
					typ, code, word, rest, err := checkReply(frame, out)
					if err != nil || reason != "fwd lb-echo" || action != testbed.XDPRedirect {
						t.Fatalf("%q, action %d: %v", reason, action, err)
					}
					if typ != c.answer || code != 0 || word != uint32(first)<<16|7 || !bytes.Equal(rest, data[:size]) {
						t.Fatalf("answer %d %d %#x %x", typ, code, word, rest)
					}
				}
			}
		}
		good := b.icmp(c.from, c.to, c.ask, 0, 7, data)
		cases := []packetCase{
			{"another address", b.icmp(c.from, c.none, c.ask, 0, 7, data), "pass other"},
			{"another code", b.icmp(c.from, c.to, c.ask, 1, 7, data), "pass other"},
			{"an echo reply", b.icmp(c.from, c.to, c.answer, 0, 7, data), "pass other"},
		}
		for _, src := range c.badSources {
			cases = append(cases, packetCase{"from " + src, b.icmp(src, c.to, c.ask, 0, 7, data), "pass other"})
		}
		for name, fragment := range c.fragments {
			cases = append(cases, packetCase{name, fragment(good), "pass other"})
		}
		for n := range 8 { // the packet ends within the ICMP header
			short := b.changed(good, func(f []byte) { setIPLen(f, n) })
			cases = append(cases, packetCase{fmt.Sprintf("%d bytes", n), short, "pass other"})
		}
		b.expectAllUnchanged(cases)
	}
}

// fragment4 returns a copy of an IPv4 frame as a fragment. off is the offset in bytes.
func fragment4(f []byte, off int, more bool) []byte {
	f = bytes.Clone(f)
	v := uint16(off / 8)
	if more {
		v |= 0x2000
	}
	binary.BigEndian.PutUint16(f[20:], v)
	f[24], f[25] = 0, 0
	binary.BigEndian.PutUint16(f[24:], ^testbed.OnesSum(f[14:34]))
	return f
}

// fragment6 inserts a fragment header into an IPv6 frame. off is the offset in bytes.
func fragment6(f []byte, off int, more bool, id uint32) []byte {
	out := extended(f, 44)
	v := uint16(off &^ 7)
	if more {
		v |= 1
	}
	out[55] = 0
	binary.BigEndian.PutUint16(out[56:], v)
	binary.BigEndian.PutUint32(out[58:], id)
	return out
}

// TestAnswersWithoutRedirect wants answers to leave with XDP_TX if no frames can be redirected to the interface, and those of
// several buffers if such frames cannot.
func TestAnswersWithoutRedirect(t *testing.T) {
	b := newBed(t, Options{})
	b.vip(0, vip4, protoTCP, []Backend{b.backend(1, 0, "10.0.0.11")})
	b.transmits(false)
	in := b.icmp("203.0.113.7", "192.0.2.1", 8, 0, 7, nil)
	action, out, reason := b.run(in)
	if _, _, _, _, err := checkReply(in, out); err != nil || action != testbed.XDPTX || reason != "fwd lb-echo" {
		t.Fatalf("%q, action %d: %v", reason, action, err)
	}
	const portLinear = 16 // PORT_LINEAR of bpf/core/port.h
	for _, c := range []struct {
		flags  uint8
		data   int
		action uint32
	}{
		{0, 100, testbed.XDPRedirect},
		{0, 8000, testbed.XDPRedirect},
		{portLinear, 100, testbed.XDPRedirect},
		{portLinear, 8000, testbed.XDPTX},
	} {
		b.editPort(func(port *bpfobj.PipelinePort) { port.Xmit, port.Spread = 1, c.flags })
		in := b.icmp("203.0.113.7", "192.0.2.1", 8, 0, 7, make([]byte, c.data))
		action, out, reason := b.run(in)
		if _, _, _, _, err := checkReply(in, out); err != nil || action != c.action || reason != "fwd lb-echo" {
			t.Errorf("%d bytes, flags %d: %q, action %d: %v", c.data, c.flags, reason, action, err)
		}
	}
}

// TestTooBig sends packets around the MTU of their backend. Those that are too big are answered with the largest size that fits.
func TestTooBig(t *testing.T) {
	b := newBed(t, Options{})
	families := []struct {
		name, client, vip string
		typ, code         byte
		quote             int // bytes of the packet that the answer quotes
		ip                int // length of the IP header
	}{
		{"IPv4", "203.0.113.7", vip4, 3, 4, 548, 20},
		{"IPv6", "[2001:db8:7::7]", vip6, 2, 0, 1232, 40},
	}
	for n, c := range []struct {
		name, addr string
		encap      Encap
		overhead   int
	}{
		{"IPIP over IPv4", "10.0.0.11", IPIP, 20},
		{"GUE over IPv4", "10.0.0.11", GUE, 28},
		{"IPIP over IPv6", "fd00::11", IPIP, 40},
		{"GUE over IPv6", "fd00::11", GUE, 48},
		{"layer 2", "10.0.0.11", L2, 0},
	} {
		backend := b.backend(uint32(1+n), 0, c.addr, func(k *Backend) { k.Encap = c.encap })
		fits := 1500 - c.overhead
		for vip, f := range families {
			b.vip(uint32(vip), f.vip, protoTCP, []Backend{backend})
			from := fmt.Sprintf("%s:%d", f.client, 1000+n)
			for _, size := range []int{fits, fits + 1, 1501, 1514, 4000, 9000} {
				in := b.packet(from, f.vip, &layers.TCP{ACK: true}, bytes.Repeat([]byte{0xa5, 1, 2}, 3000)[:size-f.ip-20])
				for link, frame := range map[int][]byte{14: in, 18: tagged(in, 0x6009)} {
					what := fmt.Sprintf("%s in %s, %d bytes behind %d", f.name, c.name, size, link)
					action, out, reason := b.run(frame)
					if size <= fits {
						if err := checkForwarded(frame, out, backend); err != nil {
							t.Fatalf("%s: %q: %v", what, reason, err)
						}
						continue
					}
					typ, code, mtu, rest, err := checkReply(frame, out)
					if err != nil || action != testbed.XDPRedirect || reason != "fwd lb-too-big" {
						t.Fatalf("%s: %q, action %d: %v", what, reason, action, err)
					}
					if typ != f.typ || code != f.code || mtu != uint32(fits) {
						t.Fatalf("%s: type %d, code %d, MTU %d, want %d, %d, %d", what, typ, code, mtu, f.typ, f.code, fits)
					}
					if _, packet, _ := ipPart(frame); !bytes.Equal(rest, packet[:f.quote]) {
						t.Fatalf("%s: the answer quotes %d bytes, want %d", what, len(rest), f.quote)
					}
					if len(out) != link+f.ip+8+f.quote {
						t.Fatalf("%s: the answer has %d bytes", what, len(out))
					}
				}
			}
		}
	}
}

// TestTooBigDropped sends packets that are too big and must not be answered, and some that are similar and must be.
func TestTooBigDropped(t *testing.T) {
	b := newBed(t, Options{})
	backend := b.backend(1, 0, "10.0.0.11")
	b.vip(0, vip4, protoUDP, []Backend{backend})
	b.vip(1, vip6, protoUDP, []Backend{backend})
	const drop, tell = "drop lb-too-big", "fwd lb-too-big"
	limit := func(l bpfobj.PipelineLimit) {
		b.must(b.inst.Map(bpfobj.PipelineMapLimits).Put(bpfobj.PipelineReasonXMIT_LB_TOO_BIG.Index(), l))
	}
	limit(bpfobj.PipelineLimit{}) // no limit before the last lines
	big4 := b.packet(client4, vip4, &layers.UDP{}, make([]byte, 1470))
	big6 := b.packet(client6, vip6, &layers.UDP{}, make([]byte, 1440))
	dfFragment := b.changed(fragment4(big4, 0, true), func(f []byte) {
		f[20] |= 0x40
		f[24], f[25] = 0, 0
		binary.BigEndian.PutUint16(f[24:], ^testbed.OnesSum(f[14:34]))
	})
	for name, frame := range map[string][]byte{
		"IPv4":                         big4,
		"IPv4 without DF":              fragment4(big4, 0, false), // a router may fragment it, but the load balancer does not
		"IPv4, first fragment":         fragment4(big4, 0, true),
		"IPv4, first fragment with DF": dfFragment,
		"IPv6":                         big6,
		"IPv6, first fragment":         fragment6(big6, 0, true, 5),
	} {
		if _, _, got := b.run(frame); got != tell {
			t.Errorf("%s: it was counted as %q, want %q", name, got, tell)
		}
	}
	b.expectAllUnchanged([]packetCase{
		{"IPv4, last fragment", fragment4(big4, 1480, false), drop},
		{"IPv4, last fragment after one with DF", fragment4(dfFragment, 1480, false), drop},
		{"IPv4, from 0/8", b.packet("0.0.0.1:5", vip4, &layers.UDP{}, make([]byte, 1470)), drop},
		{"IPv4, from loopback", b.packet("127.0.0.1:5", vip4, &layers.UDP{}, make([]byte, 1470)), drop},
		{"IPv4, from multicast", b.packet("239.0.0.1:5", vip4, &layers.UDP{}, make([]byte, 1470)), drop},
		{"IPv6, last fragment", fragment6(big6, 1480, false, 5), drop},
	})
	// The MTU of IPv6 is at least 1280 bytes, so no sender can be told to send less.
	b.backend(1, 0, "10.0.0.11", func(backend *Backend) { backend.Hop.MTU = 1280 })
	b.expectUnchanged(b.packet(client6, vip6, &layers.UDP{}, make([]byte, 1280-48)), drop)
	over := b.packet(client6, vip6, &layers.UDP{}, make([]byte, 1281-48))
	_, out, _ := b.run(over)
	if _, _, mtu, _, err := checkReply(over, out); err != nil || mtu != 1280 {
		t.Fatalf("the answer has MTU %d: %v", mtu, err)
	}
	// An ICMP error is not answered.
	quoted := b.packet(vip4, client4, &layers.UDP{}, make([]byte, 1300))[14:]
	b.expectUnchanged(b.icmp("198.51.100.9", "192.0.2.1", 3, 4, 1400, quoted), drop)
	// The limit is used up.
	limit(bpfobj.PipelineLimit{Interval: 1e15, Burst: 1})
	b.expect(big4, tell) // from the share of the interface
	b.expect(big4, tell) // from the share of all interfaces
	b.expectUnchanged(big4, drop)
}

// TestICMPErrors sends ICMP errors about packets of a VIP. They go to the backend that has the flow or would get it.
func TestICMPErrors(t *testing.T) {
	b := newBed(t, Options{})
	one, two := b.backend(1, 0, "10.0.0.11"), b.backend(2, 0, "fd00::12", func(k *Backend) { k.Encap = GUE })
	vips := []struct {
		client, to, address string
		proto               uint8
		allPorts            bool
	}{
		{client4, "192.0.2.1:80", "192.0.2.1:80", protoTCP, false},
		{client6, "[2001:db8::1]:80", "[2001:db8::1]:80", protoTCP, false},
		{client4, "192.0.2.1:80", "192.0.2.1:80", protoUDP, false},
		{client6, "[2001:db8::1]:80", "[2001:db8::1]:80", protoUDP, false},
		{client4, "192.0.2.5:777", "192.0.2.5:0", protoTCP, true},
		{client6, "[2001:db8::5]:777", "[2001:db8::5]:0", protoUDP, true},
	}
	for n, v := range vips {
		number := uint32(n)
		b.vip(number, v.address, v.proto, []Backend{one, two})
		transport := func() serializable {
			if v.proto == protoTCP {
				return &layers.TCP{ACK: true}
			}
			return &layers.UDP{}
		}
		in := b.packet(v.client, v.to, transport(), []byte("0123456789"))
		quoted := b.packet(v.to, v.client, transport(), make([]byte, 600))[14:]
		from, types := "198.51.100.9", []byte{3, 11, 12}
		if quoted[0]>>4 == 6 {
			from, types = "2001:db8:9::9", []byte{1, 2, 3, 4}
		}
		to := netip.MustParseAddrPort(v.to).Addr().String()
		asked := func(typ byte, quoted []byte) []byte { return b.icmp(from, to, typ, 4, 1400, quoted) }
		byRing := b.expectSent(asked(types[0], quoted), "fwd lb-icmp", one, two)
		backend := b.expectSent(in, "fwd lb-new", one, two)
		if byRing.ID != backend.ID {
			t.Fatalf("VIP %d: errors go to %v, packets to %v", number, byRing.Addr, backend.Addr)
		}
		other := one
		if backend.ID == one.ID {
			other = two
		}
		b.ring(number, []Backend{other})
		l3 := len(quoted) - 600 - map[uint8]int{protoTCP: 20, protoUDP: 8}[v.proto]
		for _, typ := range types {
			for _, n := range []int{l3 + 8, l3 + 9, 100, 500} {
				b.expectSent(asked(typ, quoted[:n]), "fwd lb-icmp", backend)
				b.expectSent(tagged(asked(typ, quoted[:n]), 5), "fwd lb-icmp", backend)
			}
		}
		quote := func(typ byte, change func(q []byte)) []byte { // a changed quotation
			return b.changed(asked(typ, quoted), func(f []byte) { change(f[14+l3+8:]) })
		}
		var cases []packetCase
		for n := range l3 + 8 {
			cases = append(cases, packetCase{fmt.Sprintf("%d bytes quoted", n), asked(types[0], quoted[:n]), "pass other"})
		}
		protocolAt, addressAt := 9, 15
		if l3 == 40 {
			protocolAt, addressAt = 6, 23
		}
		cases = append(cases,
			packetCase{"another protocol", quote(types[0], func(q []byte) { q[protocolAt] = 132 }), "pass other"},
			packetCase{"another address", quote(types[0], func(q []byte) { q[addressAt] ^= 1 }), "pass other"},
			packetCase{"another version", quote(types[0], func(q []byte) { q[0] ^= 0x30 }), "pass other"},
		)
		if !v.allPorts {
			cases = append(cases, packetCase{"another port", quote(types[0], func(q []byte) { q[l3+1] ^= 3; q[l3] ^= 0x40 }), "pass other"})
		}
		if l3 == 20 {
			cases = append(cases,
				packetCase{"options quoted", quote(3, func(q []byte) { q[0] = 0x46 }), "pass other"},
				packetCase{"a later fragment quoted", quote(3, func(q []byte) { q[7] = 1 }), "pass other"},
				packetCase{"a redirect", b.changed(asked(3, quoted), func(f []byte) { f[34] = 5 }), "pass other"},
				packetCase{"a later fragment", fragment4(asked(3, quoted), 8, false), "pass other"},
			)
		} else {
			cases = append(cases, packetCase{"hop-by-hop options quoted", quote(2, func(q []byte) { q[6] = 0 }), "pass other"})
		}
		b.expectAllUnchanged(cases)
		events, err := b.event(number, bpfobj.PipelineLbEventLB_EVENT_ICMP)
		b.must(err)
		if want := uint64(1 + 8*len(types)); events != want {
			t.Errorf("VIP %d counts %d errors, want %d", number, events, want)
		}
	}
}
