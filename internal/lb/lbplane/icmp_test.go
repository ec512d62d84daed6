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

// icmp builds a frame of ICMP or ICMPv6 between two addresses.
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

func TestEcho(t *testing.T) {
	b := newBed(t, Options{})
	m := b.backend(1, 0, "10.0.0.11")
	b.vip(0, vip4, protoTCP, []Backend{m})
	b.vip(1, vip6, protoUDP, []Backend{m})
	for _, c := range []struct {
		from, to, none string
		ask, answer    byte
	}{
		{"203.0.113.7", "192.0.2.1", "192.0.2.2", 8, 0},
		{"2001:db8:7::7", "2001:db8::1", "2001:db8::2", 128, 129},
	} {
		data := bytes.Repeat([]byte("pinging"), 30)
		// Data that brings the checksum to each corner of its arithmetic, lengths even and odd.
		for _, first := range []uint16{0, 1, 0x07ff, 0x0800, 0x0801, 0xf7fe, 0xf7ff, 0xf800, 0xfffe, 0xffff, 0x1234} {
			for _, size := range []int{0, 2, 13, 56, 210} {
				if size >= 2 {
					binary.BigEndian.PutUint16(data, first)
				}
				in := b.icmp(c.from, c.to, c.ask, 0, uint32(first)<<16|7, data[:size])
				for _, frame := range [][]byte{in, tagged(in, 0x6009)} {
					action, out, reason := b.run(frame)
					typ, code, word, rest, err := answerRight(frame, out)
					if err != nil || reason != "fwd lb-echo" || action != testbed.XDPRedirect {
						t.Fatalf("%q, action %d: %v", reason, action, err)
					}
					if typ != c.answer || code != 0 || word != uint32(first)<<16|7 || !bytes.Equal(rest, data[:size]) {
						t.Fatalf("answer %d %d %#x %x", typ, code, word, rest)
					}
				}
			}
		}
		b.leaves(b.icmp(c.from, c.none, c.ask, 0, 7, data), "pass other")
		b.leaves(b.icmp(c.from, c.to, c.ask, 1, 7, data), "pass other")
		b.leaves(b.icmp(c.from, c.to, c.answer, 0, 7, data), "pass other")
		good := b.icmp(c.from, c.to, c.ask, 0, 7, data)
		if c.ask == 8 {
			for _, src := range []string{"0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255"} {
				b.leaves(b.icmp(src, c.to, c.ask, 0, 7, data), "pass other")
			}
			b.leaves(fragment4(good, 0, true), "pass other")
			b.leaves(fragment4(good, 8, false), "pass other")
		} else {
			for _, src := range []string{"::", "::1", "ff02::1"} {
				b.leaves(b.icmp(src, c.to, c.ask, 0, 7, data), "pass other")
			}
			b.leaves(fragment6(good, 0, true, 1), "pass other")
		}
		// Cut off within its header.
		for n := range 8 {
			b.leaves(b.changed(good, func(f []byte) { setIPLen(f, n) }), "pass other")
		}
	}
}

// fragment4 makes an IPv4 frame a fragment, of that offset in bytes.
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

// fragment6 puts a fragment header into an IPv6 frame.
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

// An answer leaves by the driver where nothing can be redirected to.
func TestAnswersWithoutRedirect(t *testing.T) {
	b := newBed(t, Options{})
	b.vip(0, vip4, protoTCP, []Backend{b.backend(1, 0, "10.0.0.11")})
	b.transmits(false)
	in := b.icmp("203.0.113.7", "192.0.2.1", 8, 0, 7, nil)
	action, out, reason := b.run(in)
	if _, _, _, _, err := answerRight(in, out); err != nil || action != testbed.XDPTX || reason != "fwd lb-echo" {
		t.Fatalf("%q, action %d: %v", reason, action, err)
	}
}

func TestTooBig(t *testing.T) {
	b := newBed(t, Options{})
	for n, c := range []struct {
		addr string
		enc  Encap
		over int
	}{
		{"10.0.0.11", IPIP, 20}, {"10.0.0.11", GUE, 28}, {"fd00::11", IPIP, 40},
		{"fd00::11", GUE, 48}, {"10.0.0.11", L2, 0},
	} {
		m := b.backend(uint32(1+n), 0, c.addr, func(m *Backend) { m.Encap = c.enc })
		b.vip(0, vip4, protoTCP, []Backend{m})
		b.vip(1, vip6, protoTCP, []Backend{m})
		fits := 1500 - c.over
		for _, v := range []struct{ client, vip string }{
			{fmt.Sprintf("203.0.113.7:%d", 1000+n), vip4}, {fmt.Sprintf("[2001:db8:7::7]:%d", 1000+n), vip6},
		} {
			head := 40
			if v.vip == vip6 {
				head = 60
			}
			for _, size := range []int{fits, fits + 1, 1501, 1514, 4000, 9000} {
				in := b.packet(v.client, v.vip, &layers.TCP{ACK: true}, bytes.Repeat([]byte{0xa5, 1, 2}, 3000)[:size-head])
				for _, frame := range [][]byte{in, tagged(in, 0x6009)} {
					action, out, reason := b.run(frame)
					if size <= fits {
						if err := sentRight(frame, out, m); err != nil {
							t.Fatalf("%d bytes: %q: %v", size, reason, err)
						}
						continue
					}
					typ, code, word, rest, err := answerRight(frame, out)
					if err != nil || action != testbed.XDPRedirect || reason != "fwd lb-too-big" {
						t.Fatalf("%d bytes: %q, action %d: %v", size, reason, action, err)
					}
					want, quote := [3]uint32{3, 4, uint32(fits)}, 548
					if v.vip == vip6 {
						want, quote = [3]uint32{2, 0, uint32(fits)}, 1232
					}
					_, packet, _ := ipPart(frame)
					if got := [3]uint32{uint32(typ), uint32(code), word}; got != want || !bytes.Equal(rest, packet[:quote]) {
						t.Fatalf("%d bytes: type, code, MTU %d, want %d; quoted %d bytes", size, got, want, len(rest))
					}
					if link := len(frame) - len(in) + 14; len(out) != link+quote+8+map[bool]int{true: 20, false: 40}[quote == 548] {
						t.Fatalf("the answer has %d bytes", len(out))
					}
				}
			}
		}
	}
}

// Nobody is told who did not ask to be, or must not be.
func TestTooBigDropped(t *testing.T) {
	b := newBed(t, Options{})
	m := b.backend(1, 0, "10.0.0.11")
	b.vip(0, vip4, protoUDP, []Backend{m})
	b.vip(1, vip6, protoUDP, []Backend{m})
	const drop, tell = "drop lb-too-big", "fwd lb-too-big"
	limit := func(l bpfobj.PipelineLimit) {
		b.must(b.inst.Map(bpfobj.PipelineMapLimits).Put(bpfobj.PipelineReasonXMIT_LB_TOO_BIG.Index(), l))
	}
	limit(bpfobj.PipelineLimit{}) // none, so that nothing is charged before the last lines
	big := b.packet(client4, vip4, &layers.UDP{}, make([]byte, 1470))
	b.expect(big, tell)
	b.expect(fragment4(big, 0, false), tell) // it may be fragmented, but not by us
	b.expect(fragment4(big, 0, true), tell)
	both := b.changed(fragment4(big, 0, true), func(f []byte) {
		f[20] |= 0x40
		f[24], f[25] = 0, 0
		binary.BigEndian.PutUint16(f[24:], ^testbed.OnesSum(f[14:34]))
	})
	b.expect(both, tell)
	b.leaves(fragment4(both, 1480, false), drop)
	b.leaves(fragment4(big, 1480, false), drop)
	for _, src := range []string{"0.0.0.1:5", "127.0.0.1:5", "239.0.0.1:5"} {
		b.leaves(b.packet(src, vip4, &layers.UDP{}, make([]byte, 1470)), drop)
	}
	big6 := b.packet(client6, vip6, &layers.UDP{}, make([]byte, 1440))
	b.expect(big6, tell)
	b.expect(fragment6(big6, 0, true, 5), tell)
	b.leaves(fragment6(big6, 1480, false, 5), drop)
	// IPv6 must carry 1280 bytes: with less room nobody can be told to send less.
	b.backend(1, 0, "10.0.0.11", func(m *Backend) { m.Hop.MTU = 1280 })
	b.leaves(b.packet(client6, vip6, &layers.UDP{}, make([]byte, 1280-48)), drop)
	over := b.packet(client6, vip6, &layers.UDP{}, make([]byte, 1281-48))
	_, out, _ := b.run(over)
	if _, _, mtu, _, err := answerRight(over, out); err != nil || mtu != 1280 {
		t.Fatalf("told %d: %v", mtu, err)
	}
	// An error that does not fit.
	quoted := b.packet(vip4, client4, &layers.UDP{}, make([]byte, 1300))[14:]
	b.leaves(b.icmp("198.51.100.9", "192.0.2.1", 3, 4, 1400, quoted), drop)
	// Too many.
	limit(bpfobj.PipelineLimit{Interval: 1e15, Burst: 1})
	b.expect(big, tell) // of what this interface has for itself
	b.expect(big, tell) // of what all share
	b.leaves(big, drop)
}

// Errors go to the backend that has the flow, or would have it.
func TestICMPErrors(t *testing.T) {
	b := newBed(t, Options{})
	one, two := b.backend(1, 0, "10.0.0.11"), b.backend(2, 0, "fd00::12", func(m *Backend) { m.Encap = GUE })
	vips := []struct {
		number              uint32
		client, to, address string
		proto               uint8
	}{
		{0, client4, "192.0.2.1:80", "192.0.2.1:80", protoTCP},
		{1, client6, "[2001:db8::1]:80", "[2001:db8::1]:80", protoTCP},
		{2, client4, "192.0.2.1:80", "192.0.2.1:80", protoUDP},
		{3, client6, "[2001:db8::1]:80", "[2001:db8::1]:80", protoUDP},
		{4, client4, "192.0.2.5:777", "192.0.2.5:0", protoTCP},
		{5, client6, "[2001:db8::5]:777", "[2001:db8::5]:0", protoUDP},
	}
	for _, v := range vips {
		b.vip(v.number, v.address, v.proto, []Backend{one, two})
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
		byRing := b.sent(asked(types[0], quoted), "fwd lb-icmp", one, two)
		has := b.sent(in, "fwd lb-new", one, two)
		if byRing.ID != has.ID {
			t.Fatalf("VIP %d: the ring has it at %v for errors, at %v for packets", v.number, byRing.Addr, has.Addr)
		}
		other := one
		if has.ID == one.ID {
			other = two
		}
		b.ring(v.number, []Backend{other})
		l3 := len(quoted) - 600 - map[uint8]int{protoTCP: 20, protoUDP: 8}[v.proto]
		for _, typ := range types {
			for _, n := range []int{l3 + 8, l3 + 9, 100, 500} {
				b.sent(asked(typ, quoted[:n]), "fwd lb-icmp", has)
				b.sent(tagged(asked(typ, quoted[:n]), 5), "fwd lb-icmp", has)
			}
		}
		for n := range l3 + 8 {
			b.leaves(asked(types[0], quoted[:n]), "pass other") // cut off
		}
		for what, change := range map[string]func(q []byte){
			"another port":     func(q []byte) { q[l3+1] ^= 3; q[l3] ^= 0x40 },
			"another protocol": func(q []byte) { q[map[int]int{20: 9, 40: 6}[l3]] = 132 },
			"another address":  func(q []byte) { q[map[int]int{20: 15, 40: 23}[l3]] ^= 1 },
			"another version":  func(q []byte) { q[0] ^= 0x30 },
		} {
			if what == "another port" && v.number > 3 {
				continue // all of them are the VIP's
			}
			b.leaves(b.changed(asked(types[0], quoted), func(f []byte) { change(f[14+l3+8:]) }), "pass other")
		}
		if l3 == 20 {
			b.leaves(b.changed(asked(3, quoted), func(f []byte) { f[14+28] = 0x46 }), "pass other") // options
			b.leaves(b.changed(asked(3, quoted), func(f []byte) { f[14+28+7] = 1 }), "pass other")  // not a first fragment
			b.leaves(b.changed(asked(3, quoted), func(f []byte) { f[34] = 5 }), "pass other")       // redirect
			b.leaves(fragment4(asked(3, quoted), 8, false), "pass other")
		} else {
			b.leaves(b.changed(asked(2, quoted), func(f []byte) { f[14+48+6] = 0 }), "pass other") // hop-by-hop
		}
		events, err := b.event(v.number, bpfobj.PipelineLbEventLB_EVENT_ICMP)
		b.must(err)
		if want := uint64(1 + 8*len(types)); events != want {
			t.Errorf("VIP %d counts %d errors, want %d", v.number, events, want)
		}
	}
}
