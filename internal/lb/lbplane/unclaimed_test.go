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

// routeOf adds a route of a type (unix.RTN_*) to a VIP. undo removes it.
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

// expectError is expect for a frame that is answered with an ICMP error, which quotes at most that many bytes of it.
func (b *bed) expectError(frame []byte, typ, code byte, word uint32, most int) {
	b.t.Helper()
	action, out, reason := b.run(frame)
	gotType, gotCode, gotWord, rest, err := checkReply(frame, out)
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

// unclaimedBed is a bed with a VIP of each family, on a host whose default route leads back to the clients.
func unclaimedBed(t *testing.T, o Options) *bed {
	b := newBed(t, o)
	backend := b.backend(1, 0, "10.0.0.11")
	b.vip(0, vip4, protoTCP, []Backend{backend})
	b.vip(1, vip6, protoUDP, []Backend{backend})
	b.forwards()
	return b
}

// withProtocol returns a copy of an IPv4 or IPv6 frame with another protocol number.
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

// withPayload returns a copy of a frame whose IP packet has n bytes behind the header.
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
				in = in[:14+len(packet)] // without padding
				b.expectError(in, v.typ, v.port, 0, v.quote)
				b.expectError(append(bytes.Clone(in), 1, 2, 3), v.typ, v.port, 0, v.quote)
				b.expectError(tagged(in, 0x6009), v.typ, v.port, 0, v.quote)
				b.expectError(withProtocol(in, 132), v.protoType, v.protoCode, v.protoWord, v.quote)
			}
		}
		for n := 0; n < 8; n++ { // too short for a transport header
			in := withPayload(withProtocol(b.packet(v.client, v.other, &layers.UDP{}, data), 132), n)
			b.expectError(in, v.protoType, v.protoCode, v.protoWord, v.quote)
			b.expectError(tagged(in, 0x6009), v.protoType, v.protoCode, v.protoWord, v.quote)
		}
		b.expectError(b.packet(v.client, v.other, &layers.UDP{}, data), v.typ, v.port, 0, v.quote)
		b.expectUnchanged(b.packet(v.client, v.none, &layers.UDP{}, nil), "pass other") // the address of no VIP
		in := b.packet(v.client, v.other, &layers.UDP{}, data[:100])
		// The first fragment has the ports, so it can be answered. Later ones cannot.
		fragment := func(off int) []byte {
			if v.typ == 3 {
				return fragment4(in, off, true)
			}
			return fragment6(in, off, true, 5)
		}
		b.expectError(fragment(0), v.typ, v.port, 0, v.quote)
		b.expectUnchanged(fragment(800), "drop lb-unclaimed")
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
	const (
		drop           = "drop lb-unclaimed"
		other4, other6 = "192.0.2.1:81", "[2001:db8::1]:81"
	)
	quoted4 := b.packet("192.0.2.1:99", client4, &layers.UDP{}, make([]byte, 40))[14:]
	quoted6 := b.packet("[2001:db8::1]:99", client6, &layers.UDP{}, make([]byte, 40))[14:]
	options := func(l serializable) {
		if ip, ok := l.(*layers.IPv4); ok {
			ip.Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
		}
	}
	in := b.packet(client4, other4, &layers.UDP{}, nil)
	cases := []packetCase{
		{"from 0/8", b.packet("0.0.0.1:5", other4, &layers.UDP{}, nil), drop},
		{"from loopback", b.packet("127.0.0.1:5", other4, &layers.UDP{}, nil), drop},
		{"from multicast", b.packet("239.0.0.1:5", other4, &layers.UDP{}, nil), drop},
		// The kernel does not forward these two.
		{"IPv6, from loopback", b.packet("[::1]:5", other6, &layers.UDP{}, nil), "pass other"},
		{"IPv6, from multicast", b.packet("[ff02::1]:5", other6, &layers.UDP{}, nil), "pass other"},
		{"ICMP error", b.icmp("198.51.100.9", "192.0.2.1", 3, 3, 0, quoted4), drop},
		{"echo reply", b.icmp("198.51.100.9", "192.0.2.1", 0, 0, 7, quoted4), drop},
		{"ICMPv6 error", b.icmp("2001:db8:9::9", "2001:db8::1", 1, 4, 0, quoted6), drop},
		{"ICMPv6 echo reply", b.icmp("2001:db8:9::9", "2001:db8::1", 129, 0, 7, quoted6), drop},
		// No VIP reads packets with options, so the port does not matter.
		{"IPv4 options, port of a VIP", b.packet(client4, vip4, syn(), nil, options), drop},
		{"IPv4 options, another port", b.packet(client4, other4, syn(), nil, options), drop},
		{"destination options, port of a VIP", extended(b.packet(client6, vip6, &layers.UDP{}, nil), 60), drop},
		// The kernel drops it.
		{"wrong IPv4 checksum", b.changed(in, func(f []byte) { f[24] ^= 1 }), "pass other"},
	}
	for _, typ := range []byte{133, 134, 135, 136, 137} { // neighbor discovery is left to the kernel
		frame := b.icmp("2001:db8:9::9", "2001:db8::1", typ, 0, 0, make([]byte, 16))
		cases = append(cases, packetCase{fmt.Sprintf("ICMPv6 type %d", typ), frame, "pass other"})
	}
	for _, next := range []byte{0, 43, 51, 59, 60, 135, 139, 140} {
		frame := withProtocol(b.packet(client6, other6, &layers.TCP{}, make([]byte, 40)), next)
		cases = append(cases, packetCase{fmt.Sprintf("next header %d", next), frame, drop})
	}
	b.expectAllUnchanged(cases)
	// The limit is used up.
	b.must(b.inst.Map(bpfobj.PipelineMapLimits).Put(bpfobj.PipelineReasonXMIT_LB_UNREACHABLE.Index(), bpfobj.PipelineLimit{Interval: 1e15, Burst: 1}))
	b.expect(in, "fwd lb-unreachable") // from the share of the interface
	b.expect(in, "fwd lb-unreachable") // from the share of all interfaces
	b.expectUnchanged(in, drop)
	// The limit does not concern packets to VIPs, nor echo requests.
	b.expect(b.packet(client4, vip4, &layers.TCP{SYN: true}, nil), "fwd lb-new")
	b.expect(b.icmp("203.0.113.7", "192.0.2.1", 8, 0, 7, nil), "fwd lb-echo")
}

// TestUnclaimedOfEmptyVIP wants packets to a VIP without backends to be passed, unless the kernel would forward them.
func TestUnclaimedOfEmptyVIP(t *testing.T) {
	b := newBed(t, Options{})
	b.vip(0, vip4, protoTCP, nil)
	in := b.packet(client4, vip4, syn(), nil)
	b.expectUnchanged(in, "pass lb-empty")
	b.forwards()
	b.expectUnchanged(in, "drop lb-empty")
	undo := b.routeOf("192.0.2.1", unix.RTN_UNREACHABLE)
	b.expectUnchanged(in, "pass lb-empty")
	undo()
	b.expectUnchanged(tagged(in, 9), "drop lb-empty")
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
			b.expectUnchanged(in, "pass other")
			undo()
			b.expect(in, "fwd lb-unreachable")
		}
		b.must(testbed.WriteSysctl(v.forwarding, "0"))
		b.expectUnchanged(in, "pass other")
		b.must(testbed.WriteSysctl(v.forwarding, "1"))
		b.expect(in, "fwd lb-unreachable")
		mask := map[bool]string{true: "/32", false: "/128"}[v.client == client4]
		addAddress(t, "out0", v.addr+mask) // the address is one of this host too
		// The kernel adds the IPv6 route to it with a delay.
		for end := time.Now().Add(testbed.Patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if _, _, reason := b.run(in); reason == "pass other" {
				break
			}
		}
		b.expectUnchanged(in, "pass other")
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
