// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/testbed"
)

// forwards makes this host a router, whose default route leads back to where clients' packets come from.
func (b *bed) forwards() {
	b.t.Helper()
	for _, name := range []string{"ipv6/conf/lb0/disable_ipv6", "ipv6/conf/out0/disable_ipv6"} {
		b.must(testbed.WriteSysctl(name, "0"))
	}
	for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		b.must(testbed.WriteSysctl(name, "1"))
	}
	for _, dev := range []*net.Interface{b.in, b.out} {
		l, err := netlink.LinkByIndex(dev.Index)
		b.must(err)
		b.must(netlink.LinkSetUp(l))
	}
	addAddress(b.t, "lb0", "10.9.0.1/24")
	addAddress(b.t, "lb0", "fd00:9::1/64")
	for _, gateway := range []string{"10.9.0.254", "fd00:9::254"} {
		b.must(netlink.NeighSet(&netlink.Neigh{
			LinkIndex: b.in.Index, IP: net.ParseIP(gateway), HardwareAddr: clientMAC, State: netlink.NUD_PERMANENT,
		}))
		b.must(netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway), LinkIndex: b.in.Index}))
	}
}

// routeOf gives a VIP a route of some type.
func (b *bed) routeOf(vip string, typ int) (undo func()) {
	b.t.Helper()
	ip := net.ParseIP(vip)
	n := &net.IPNet{IP: ip, Mask: net.CIDRMask(128, 128)}
	if v4 := ip.To4(); v4 != nil {
		n = &net.IPNet{IP: v4, Mask: net.CIDRMask(32, 32)}
	}
	r := &netlink.Route{Dst: n, Type: typ, Priority: 1}
	b.must(netlink.RouteAdd(r))
	return func() { b.must(netlink.RouteDel(r)) }
}

// refused is expect for a frame that has to be answered with an error, which has to quote most bytes of it at most.
func (b *bed) refused(frame []byte, typ, code byte, word uint32, most int) {
	b.t.Helper()
	action, out, reason := b.run(frame)
	gotType, gotCode, gotWord, rest, err := answerRight(frame, out)
	if err != nil || reason != "fwd lb-unreachable" || action != testbed.XDPRedirect {
		b.t.Fatalf("%q, action %d: %v\n%x", reason, action, err, frame)
	}
	_, packet, _ := ipPart(frame)
	if want := packet[:min(len(packet), most)]; !bytes.Equal(rest, want) {
		b.t.Fatalf("quoted are %d bytes of %d\n%x, want\n%x", len(rest), len(packet), rest, want)
	}
	if gotType != typ || gotCode != code || gotWord != word {
		b.t.Fatalf("type %d, code %d, %#x, want %d, %d, %#x", gotType, gotCode, gotWord, typ, code, word)
	}
}

// unclaimedBed has a VIP on each family's address, and a route that leads back.
func unclaimedBed(t *testing.T, o Options) *bed {
	b := newBed(t, o)
	m := b.backend(1, 0, "10.0.0.11")
	b.vip(0, vip4, protoTCP, []Backend{m})
	b.vip(1, vip6, protoUDP, []Backend{m})
	b.forwards()
	return b
}

// withProtocol makes an IPv4 or IPv6 frame one of another protocol.
func withProtocol(frame []byte, proto byte) []byte {
	f := bytes.Clone(frame)
	if f[12] == 0x86 {
		f[20] = proto
		return f
	}
	f[23], f[24], f[25] = proto, 0, 0
	binary.BigEndian.PutUint16(f[24:], ^testbed.OnesSum(f[14:34]))
	return f
}

// withPayload leaves n bytes behind the IP header of a frame.
func withPayload(frame []byte, n int) []byte {
	if frame[12] == 0x86 {
		f := bytes.Clone(frame[:54+n])
		binary.BigEndian.PutUint16(f[18:], uint16(n))
		return f
	}
	f := bytes.Clone(frame[:34+n])
	binary.BigEndian.PutUint16(f[16:], uint16(20+n))
	f[24], f[25] = 0, 0
	binary.BigEndian.PutUint16(f[24:], ^testbed.OnesSum(f[14:34]))
	return f
}

// TestUnclaimedIsAnswered wants unclaimed packets of any length to be answered as a host with the address would.
func TestUnclaimedIsAnswered(t *testing.T) {
	b := unclaimedBed(t, Options{})
	b.must(b.inst.Map(bpfobj.PipelineMapLimits).Put(bpfobj.PipelineReasonXMIT_LB_UNREACHABLE.Index(), bpfobj.PipelineLimit{}))
	data := bytes.Repeat([]byte{0xa5, 1, 2, 0xfe, 7}, 600)
	for _, v := range []struct {
		client, other string
		quote, mtu    int
		typ, port     byte
		protoType     byte
		protoCode     byte
		protoWord     uint32
		none          string
	}{
		{client4, "192.0.2.1:81", 548, 1500, 3, 3, 3, 2, 0, "192.0.2.2:81"},
		{client6, "[2001:db8::1]:81", 1232, 1500, 1, 4, 4, 1, 6, "[2001:db8::2]:81"},
	} {
		for size := 0; size < 1480; size += 1 + size/40 {
			for _, l4 := range []serializable{&layers.UDP{}, &layers.TCP{SYN: true}} {
				in := b.packet(v.client, v.other, l4, data[:size])
				_, packet, err := ipPart(in)
				b.must(err)
				in = in[:14+len(packet)] // without what fills it up
				b.refused(in, v.typ, v.port, 0, v.quote)
				b.refused(append(bytes.Clone(in), 1, 2, 3), v.typ, v.port, 0, v.quote)
				b.refused(tagged(in, 0x6009), v.typ, v.port, 0, v.quote)
				b.refused(withProtocol(in, 132), v.protoType, v.protoCode, v.protoWord, v.quote)
			}
		}
		for n := 0; n < 8; n++ { // hardly more than a header
			in := withPayload(withProtocol(b.packet(v.client, v.other, &layers.UDP{}, data), 132), n)
			b.refused(in, v.protoType, v.protoCode, v.protoWord, v.quote)
			b.refused(tagged(in, 0x6009), v.protoType, v.protoCode, v.protoWord, v.quote)
		}
		b.refused(b.packet(v.client, v.other, &layers.UDP{}, data), v.typ, v.port, 0, v.quote)
		b.leaves(b.packet(v.client, v.none, &layers.UDP{}, nil), "pass other") // no VIP's address
		in := b.packet(v.client, v.other, &layers.UDP{}, data[:100])
		// The first fragment has what the answer is about.
		fragment := func(off int) []byte {
			if v.typ == 3 {
				return fragment4(in, off, true)
			}
			return fragment6(in, off, true, 5)
		}
		b.refused(fragment(0), v.typ, v.port, 0, v.quote)
		b.leaves(fragment(800), "drop lb-unclaimed")
	}
	b.transmits(false)
	if action, _, reason := b.run(b.packet(client4, "192.0.2.1:81", &layers.UDP{}, nil)); action != testbed.XDPTX || reason != "fwd lb-unreachable" {
		t.Errorf("%q, action %d", reason, action)
	}
}

// TestUnclaimedIsDropped wants packets that must not be answered (RFC 1122, 3.2.2; RFC 4443, 2.4) to be dropped, so that they
// are not sent back.
func TestUnclaimedIsDropped(t *testing.T) {
	b := unclaimedBed(t, Options{})
	const drop = "drop lb-unclaimed"
	for _, src := range []string{"0.0.0.1:5", "127.0.0.1:5", "239.0.0.1:5"} {
		b.leaves(b.packet(src, "192.0.2.1:81", &layers.UDP{}, nil), drop)
	}
	for _, src := range []string{"[::1]:5", "[ff02::1]:5"} { // the kernel does not forward these
		b.leaves(b.packet(src, "[2001:db8::1]:81", &layers.UDP{}, nil), "pass other")
	}
	quoted := b.packet("192.0.2.1:99", client4, &layers.UDP{}, make([]byte, 40))[14:]
	quoted6 := b.packet("[2001:db8::1]:99", client6, &layers.UDP{}, make([]byte, 40))[14:]
	b.leaves(b.icmp("198.51.100.9", "192.0.2.1", 3, 3, 0, quoted), drop)
	b.leaves(b.icmp("198.51.100.9", "192.0.2.1", 0, 0, 7, quoted), drop)
	b.leaves(b.icmp("2001:db8:9::9", "2001:db8::1", 1, 4, 0, quoted6), drop)
	b.leaves(b.icmp("2001:db8:9::9", "2001:db8::1", 129, 0, 7, quoted6), drop)
	for kind := byte(133); kind <= 137; kind++ { // neighbor discovery is the kernel's
		b.leaves(b.icmp("2001:db8:9::9", "2001:db8::1", kind, 0, 0, make([]byte, 16)), "pass other")
	}
	for _, next := range []byte{0, 43, 51, 59, 60, 135, 139, 140} {
		b.leaves(withProtocol(b.packet(client6, "[2001:db8::1]:81", &layers.TCP{}, make([]byte, 40)), next), drop)
	}
	// Options, which no VIP reads: to a port of its own and to another one.
	for _, port := range []string{"80", "81"} {
		in := b.packet(client4, "192.0.2.1:"+port, &layers.TCP{SYN: true}, nil, func(l serializable) {
			if ip, ok := l.(*layers.IPv4); ok {
				ip.Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
			}
		})
		b.leaves(in, drop)
	}
	b.leaves(extended(b.packet(client6, vip6, &layers.UDP{}, nil), 60), drop)
	in := b.packet(client4, "192.0.2.1:81", &layers.UDP{}, nil)
	b.leaves(b.changed(in, func(f []byte) { f[24] ^= 1 }), "pass other") // the kernel drops it
	// Over the limit.
	b.must(b.inst.Map(bpfobj.PipelineMapLimits).Put(bpfobj.PipelineReasonXMIT_LB_UNREACHABLE.Index(), bpfobj.PipelineLimit{Interval: 1e15, Burst: 1}))
	b.expect(in, "fwd lb-unreachable") // of the interface's own share
	b.expect(in, "fwd lb-unreachable") // of what all share
	b.leaves(in, drop)
	// What is a VIP's, or asks whether the address lives, is not touched by that.
	b.expect(b.packet(client4, vip4, &layers.TCP{SYN: true}, nil), "fwd lb-new")
	b.expect(b.icmp("203.0.113.7", "192.0.2.1", 8, 0, 7, nil), "fwd lb-echo")
}

// TestUnclaimedOfEmptyVIP wants packets to a VIP without backends to be passed, unless the kernel would forward them.
func TestUnclaimedOfEmptyVIP(t *testing.T) {
	b := newBed(t, Options{})
	b.vip(0, vip4, protoTCP, nil)
	in := b.packet(client4, vip4, syn(), nil)
	b.leaves(in, "pass lb-empty")
	b.forwards()
	b.leaves(in, "drop lb-empty")
	undo := b.routeOf("192.0.2.1", unix.RTN_UNREACHABLE)
	b.leaves(in, "pass lb-empty")
	undo()
	b.leaves(tagged(in, 9), "drop lb-empty")
}

// TestUnclaimedIsTheKernels wants packets that the kernel does not forward to be passed.
func TestUnclaimedIsTheKernels(t *testing.T) {
	b := unclaimedBed(t, Options{})
	for _, v := range []struct{ client, other, addr, forwarding string }{
		{client4, "192.0.2.1:81", "192.0.2.1", "ipv4/conf/lb0/forwarding"},
		{client6, "[2001:db8::1]:81", "2001:db8::1", "ipv6/conf/lb0/forwarding"},
	} {
		in := b.packet(v.client, v.other, &layers.UDP{}, nil)
		b.expect(in, "fwd lb-unreachable")
		for _, typ := range []int{unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT} {
			undo := b.routeOf(v.addr, typ)
			b.leaves(in, "pass other")
			undo()
			b.expect(in, "fwd lb-unreachable")
		}
		b.must(testbed.WriteSysctl(v.forwarding, "0"))
		b.leaves(in, "pass other")
		b.must(testbed.WriteSysctl(v.forwarding, "1"))
		b.expect(in, "fwd lb-unreachable")
		mask := map[bool]string{true: "/32", false: "/128"}[v.client == client4]
		addAddress(t, "out0", v.addr+mask) // of this host too
		// IPv6 makes the route to it later.
		for end := time.Now().Add(testbed.Patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if _, _, reason := b.run(in); reason == "pass other" {
				break
			}
		}
		b.leaves(in, "pass other")
	}
}

// TestUnclaimedOption wants unclaimed packets to be treated as configured.
func TestUnclaimedOption(t *testing.T) {
	for option, want := range map[Unclaimed]string{
		Reject: "fwd lb-unreachable", Drop: "drop lb-unclaimed", Pass: "pass other",
	} {
		t.Run(fmt.Sprint(option), func(t *testing.T) {
			b := unclaimedBed(t, Options{Unclaimed: option})
			b.expect(b.packet(client4, "192.0.2.1:81", &layers.UDP{}, nil), want)
			b.expect(b.packet(client6, "[2001:db8::1]:81", &layers.TCP{SYN: true}, nil), want)
			b.vip(0, vip4, protoTCP, nil)
			empty := map[bool]string{true: "pass lb-empty", false: "drop lb-empty"}[option == Pass]
			b.expect(b.packet(client4, vip4, syn(), nil), empty)
		})
	}
}
