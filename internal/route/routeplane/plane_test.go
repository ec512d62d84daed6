// SPDX-License-Identifier: Apache-2.0

package routeplane

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"testing"
	"unsafe"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/lb/lbplane"
	"culvert/internal/scion/scionplane"
	"culvert/internal/testbed"
)

// routeBed is a router with two interfaces, east and west, a network on each and a neighbor there.
type routeBed struct {
	t          *testing.T
	inst       *datapath.Instance
	plane      *Plane
	west, east *net.Interface
}

var neighborMAC = [6]byte{2, 0, 0, 0, 0, 9}

func newRouteBed(t *testing.T, o Options) *routeBed {
	testbed.InNamespace(t)
	testbed.Sysctl(t, "ipv6/conf/all/disable_ipv6", "0")
	// The peers have no IPv6: no packet of theirs comes between those that the tests count.
	testbed.Sysctl(t, "ipv6/conf/default/disable_ipv6", "1")
	for _, which := range []string{"all", "default"} {
		testbed.Sysctl(t, "ipv6/conf/"+which+"/forwarding", "1")
		testbed.Sysctl(t, "ipv4/conf/"+which+"/forwarding", "1")
		testbed.Sysctl(t, "ipv4/conf/"+which+"/rp_filter", "0")
	}
	b := &routeBed{t: t, west: testbed.AddVeth(t, "west", "westp"), east: testbed.AddVeth(t, "east", "eastp")}
	testbed.Sysctl(t, "ipv6/conf/west/disable_ipv6", "0")
	testbed.Sysctl(t, "ipv6/conf/east/disable_ipv6", "0")
	for _, cmd := range []string{
		"addr add 10.1.0.1/24 dev west", "addr add 10.2.0.1/24 dev east",
		"addr add fd01::1/64 dev west nodad", "addr add fd02::1/64 dev east nodad",
		"neigh replace 10.2.0.9 lladdr 02:00:00:00:00:09 dev east nud permanent",
		"neigh replace fd02::9 lladdr 02:00:00:00:00:09 dev east nud permanent",
		"route add 192.0.2.0/24 via 10.2.0.9", "route add 2001:db8::/32 via fd02::9",
		"route add blackhole 198.51.100.0/24",
	} {
		testbed.IP(t, cmd)
	}
	inst, err := datapath.Attach(datapath.Options{
		Name: "route", Interfaces: []string{"west", "east"}, Parts: []datapath.Part{NewPart(o)}, Temporary: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(inst.Close)
	b.inst = inst
	b.plane, err = Open(inst)
	b.must(err)
	t.Cleanup(b.plane.Close)
	for _, dev := range []*net.Interface{b.west, b.east} {
		b.must(b.plane.SetDev(dev.Index, Dev{
			Port: dev.Index, MAC: [6]byte(dev.HardwareAddr), Forward4: true, Forward6: true, Xmit: true,
		}))
	}
	return b
}

func (b *routeBed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// packet returns a UDP packet to the MAC address of west, with a tag if vlan is not 0.
func (b *routeBed) packet(src, dst string, vlan uint16, ttl uint8) []byte {
	b.t.Helper()
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: b.west.HardwareAddr}
	from, to := netip.MustParseAddr(src), netip.MustParseAddr(dst)
	var l3 gopacket.NetworkLayer
	udp := &layers.UDP{SrcPort: 1000, DstPort: 2000}
	var l gopacket.SerializableLayer
	if from.Is4() {
		eth.EthernetType = layers.EthernetTypeIPv4
		v4 := &layers.IPv4{Version: 4, TTL: ttl, Protocol: layers.IPProtocolUDP, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
		l3, l = v4, v4
	} else {
		eth.EthernetType = layers.EthernetTypeIPv6
		v6 := &layers.IPv6{Version: 6, HopLimit: ttl, NextHeader: layers.IPProtocolUDP, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
		l3, l = v6, v6
	}
	b.must(udp.SetNetworkLayerForChecksum(l3))
	stack := []gopacket.SerializableLayer{eth}
	if vlan != 0 {
		stack = append(stack, &layers.Dot1Q{VLANIdentifier: vlan, Type: eth.EthernetType})
		eth.EthernetType = layers.EthernetTypeDot1Q
	}
	stack = append(stack, l, udp, gopacket.Payload("some payload, long enough for a frame"))
	buf := gopacket.NewSerializeBuffer()
	b.must(gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, stack...))
	return buf.Bytes()
}

// expect sends a packet in by west, and checks under which verdict and reason it is counted, and what becomes of it.
func (b *routeBed) expect(in []byte, reason string) []byte {
	b.t.Helper()
	before := b.count(reason)
	action, out, err := b.inst.TestRun(in, "west")
	b.must(err)
	if b.count(reason) != before+1 {
		b.t.Fatalf("action %d, not counted as %s: %+v", action, reason, b.reasons())
	}
	verdict := map[string]uint32{"pass": testbed.XDPPass, "punt": testbed.XDPPass, "drop": testbed.XDPDrop, "fwd": testbed.XDPRedirect}
	name, _, _ := strings.Cut(reason, " ")
	if action != verdict[name] {
		b.t.Errorf("action %d for %s", action, reason)
	}
	if name != "fwd" && !bytes.Equal(in, out) {
		b.t.Errorf("%s changed the packet", reason)
	}
	return out
}

func (b *routeBed) count(reason string) uint64 { return b.reasons()[reason] }

func (b *routeBed) reasons() map[string]uint64 {
	ports, err := b.inst.Ports()
	b.must(err)
	all := make(map[string]uint64)
	for _, p := range ports {
		for _, r := range p.Reasons {
			all[string(r.Verdict)+" "+r.Name] += r.Packets
		}
	}
	return all
}

// forwarded returns a packet as Linux forwards it from west to the neighbor on east, with a tag if vlan is not 0.
func (b *routeBed) forwarded(in []byte, vlan uint16) []byte {
	l3 := 14
	if binary.BigEndian.Uint16(in[12:]) == 0x8100 {
		l3 = 18
	}
	packet := bytes.Clone(in[l3:])
	proto := in[l3-2 : l3]
	if packet[0]>>4 == 4 {
		packet[8]--
		sum := uint32(0)
		packet[10], packet[11] = 0, 0
		for n := 0; n < 20; n += 2 {
			sum += uint32(binary.BigEndian.Uint16(packet[n:]))
		}
		sum = sum&0xffff + sum>>16
		binary.BigEndian.PutUint16(packet[10:], ^uint16(sum+sum>>16))
	} else {
		packet[7]--
	}
	out := append(neighborMAC[:6:6], b.east.HardwareAddr...)
	if vlan != 0 {
		out = append(out, 0x81, 0, byte(vlan>>8), byte(vlan))
	}
	return append(append(out, proto...), packet...)
}

func TestRouteByKernel(t *testing.T) {
	b := newRouteBed(t, Options{NoMirror: true})
	for _, in := range [][]byte{
		b.packet("10.1.0.2", "192.0.2.5", 0, 64), b.packet("10.1.0.2", "192.0.2.5", 0, 2),
		b.packet("fd01::2", "2001:db8::5", 0, 64), b.packet("10.1.0.2", "10.2.0.9", 0, 64),
	} {
		if out := b.expect(in, "fwd route-fib"); !bytes.Equal(out, b.forwarded(in, 0)) {
			t.Errorf("forwarded as\n%x, want\n%x", out, b.forwarded(in, 0))
		}
	}
	// A neighbor counts as used when the kernel's answer has named it.
	for number, addr := range map[uint32]string{20: "10.2.0.9", 21: "fd02::9"} {
		b.must(b.plane.SetNeighbor(Neighbor{Dev: b.east.Index, Addr: netip.MustParseAddr(addr)}, number))
		if b.plane.HopUsed(number) != 0 {
			t.Errorf("next hop %d was used", number)
		}
	}
	b.expect(b.packet("10.1.0.2", "192.0.2.5", 0, 64), "fwd route-fib")
	b.expect(b.packet("fd01::2", "2001:db8::5", 0, 64), "fwd route-fib")
	for number := uint32(20); number < 22; number++ {
		if b.plane.HopUsed(number) == 0 {
			t.Errorf("next hop %d was not used", number)
		}
	}
	for _, tt := range []struct {
		name, src, dst string
		ttl            uint8
		reason         string
	}{
		{"IPv4 hop limit", "10.1.0.2", "192.0.2.5", 1, "punt route-ttl"},
		{"IPv6 hop limit", "fd01::2", "2001:db8::5", 1, "punt route-ttl"},
		{"blackhole", "10.1.0.2", "198.51.100.1", 64, "drop route-blackhole"},
		// bpf_fib_lookup does not distinguish no route from a local destination.
		{"no route", "10.1.0.2", "203.0.113.1", 64, "pass route-local"},
		{"to this host", "10.1.0.2", "10.2.0.1", 1, "pass route-local"},
		{"link-local", "fe80::2", "fe80::1", 255, "pass route-local"},
		{"unknown neighbor", "10.1.0.2", "10.2.0.7", 64, "punt route-neighbor"},
		{"martian source", "127.0.0.1", "192.0.2.5", 64, "punt route-martian"},
		{"link-local source, maybe to this host", "fe80::1", "2001:db8::5", 64, "pass route-kernel"},
		{"multicast", "10.1.0.2", "224.0.0.5", 64, "punt route-multicast"},
	} {
		t.Log(tt.name)
		b.expect(b.packet(tt.src, tt.dst, 0, tt.ttl), tt.reason)
	}
}

// A program that trusts the mirror does not need the kernel's tables, which are empty here.
func TestRouteByMirror(t *testing.T) {
	b := newRouteBed(t, Options{Trusting: true, Blocks4: 4, Blocks6: 16})
	const hop, tagged = HopFirst, HopFirst + 1
	b.must(b.plane.SetHop(hop, Hop{
		Action: Forward, Dev: b.east.Index, Port: b.east.Index, MTU: 1500,
		SrcMAC: [6]byte(b.east.HardwareAddr), DstMAC: neighborMAC,
	}))
	b.must(b.plane.SetHop(tagged, Hop{
		Action: Forward, Dev: 1000, Port: b.east.Index, MTU: 1500, VLAN: 0x1000 | 20,
		SrcMAC: [6]byte(b.east.HardwareAddr), DstMAC: neighborMAC,
	}))
	root, blocks := b.plane.Table4()
	root[203<<16|113] = 1<<31 | 3 // 203.0.113.0/24 leads to block 3
	blocks[3*256+7] = 32<<23 | hop
	blocks[3*256+8] = 32<<23 | tagged
	blocks[3*256+9] = 32<<23 | HopBlackhole
	root6, blocks6 := b.plane.Table6()
	root6[0x2003] = 1<<31 | 2
	for level, octet := range []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5} {
		entry := uint32(1<<31 | level + 3)
		if level == 13 {
			entry = 128<<23&0x7fffffff | hop
		}
		blocks6[(level+2)*256+octet] = entry
	}

	for dst, vlan := range map[string]uint16{"203.0.113.7": 0, "203.0.113.8": 20} {
		in := b.packet("10.1.0.2", dst, 0, 64)
		if out := b.expect(in, "fwd route"); !bytes.Equal(out, b.forwarded(in, vlan)) {
			t.Errorf("to %s forwarded as\n%x, want\n%x", dst, out, b.forwarded(in, vlan))
		}
	}
	in := b.packet("fd01::2", "2003::5", 0, 64)
	if out := b.expect(in, "fwd route"); !bytes.Equal(out, b.forwarded(in, 0)) {
		t.Errorf("forwarded as\n%x, want\n%x", out, b.forwarded(in, 0))
	}
	root6[0x2004] = 16<<23 | HopLocal
	root6[0x2005] = 16<<23 | HopNone
	for _, tt := range []struct{ name, src, dst, reason string }{
		{"blackhole", "10.1.0.2", "203.0.113.9", "drop route-blackhole"},
		{"the mirror asks, and the kernel has no route", "fd01::2", "2003::6", "pass route-local"},
		{"link-local source to this host", "fe80::2", "2004::1", "pass route-local"},
		{"link-local source elsewhere", "fe80::2", "2005::1", "punt route-martian"},
		{"no route", "fd01::2", "2005::1", "punt route-none"},
	} {
		t.Log(tt.name)
		b.expect(b.packet(tt.src, tt.dst, 0, 64), tt.reason)
	}
	if used := b.plane.HopUsed(hop); used == 0 {
		t.Error("the next hop counts as never used")
	}

	// Tag 30 belongs to no device at first, and then to one that forwards to a network without and with a tag.
	in = b.packet("10.1.0.2", "203.0.113.7", 30, 64)
	b.expect(in, "pass route-off")
	b.must(b.plane.SetDev(1001, Dev{
		Port: b.west.Index, VLAN: 0x1000 | 30, MAC: [6]byte(b.west.HardwareAddr), Forward4: true,
	}))
	if out := b.expect(in, "fwd route"); !bytes.Equal(out, b.forwarded(in, 0)) {
		t.Errorf("out of a VLAN as\n%x, want\n%x", out, b.forwarded(in, 0))
	}
	in = b.packet("10.1.0.2", "203.0.113.8", 30, 64)
	if out := b.expect(in, "fwd route"); !bytes.Equal(out, b.forwarded(in, 20)) {
		t.Errorf("from VLAN to VLAN as\n%x, want\n%x", out, b.forwarded(in, 20))
	}
	b.must(b.plane.DeleteDev(1001))
	b.expect(in, "pass route-off")

	// No forwarded packet comes from an address of this host.
	b.must(b.plane.SetOwn4([]netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.2.0.1")}))
	b.expect(b.packet("10.2.0.1", "203.0.113.7", 0, 64), "punt route-martian")
	b.must(b.plane.SetOwn4([]netip.Addr{netip.MustParseAddr("10.1.0.1")}))
	b.expect(b.packet("10.2.0.1", "203.0.113.7", 0, 64), "fwd route")
}

// Neighbor discovery goes to the kernel, which may be a proxy. Frames to a device's former MAC address are for no one here.
func TestRouteByAddress(t *testing.T) {
	b := newRouteBed(t, Options{NoMirror: true})
	in := b.packet("fd01::2", "2001:db8::5", 0, 64)
	for kind, reason := range map[byte]string{128: "fwd route-fib", 133: "pass route-kernel", 135: "pass route-kernel", 137: "pass route-kernel", 138: "fwd route-fib"} {
		in[20], in[54] = 58, kind
		b.expect(in, reason)
	}
	in = b.packet("10.1.0.2", "192.0.2.5", 0, 64)
	b.expect(in, "fwd route-fib")
	b.must(b.plane.SetDev(b.west.Index, Dev{Port: b.west.Index, MAC: neighborMAC, Forward4: true, Xmit: true}))
	b.expect(in, "pass other")
	copy(in, neighborMAC[:])
	b.expect(in, "fwd route-fib")
	// SetDev ignores interfaces that do not carry the program.
	b.must(b.plane.SetDev(9999, Dev{Port: 9999, Xmit: true}))
	if devs, err := b.plane.Devs(); err != nil || len(devs) != 2 {
		t.Errorf("devices %v, %v", devs, err)
	}
}

// A trailer after the packet is removed, as the kernel does, but not padding.
func TestRouteTrims(t *testing.T) {
	b := newRouteBed(t, Options{NoMirror: true})
	in := b.packet("10.1.0.2", "192.0.2.5", 0, 64)
	want := b.forwarded(in, 0)
	if out := b.expect(append(bytes.Clone(in), "trailer"...), "fwd route-fib"); !bytes.Equal(out, want) {
		t.Errorf("forwarded as\n%x, want\n%x", out, want)
	}
}

// Maps are mapped as arrays of these types, so their sizes must be multiples of 8, to which the kernel rounds them.
func TestRouteLayout(t *testing.T) {
	for name, size := range map[string]uintptr{
		"hop": unsafe.Sizeof(bpfobj.PipelineRouteHop{}), "state": unsafe.Sizeof(bpfobj.PipelineRouteState{}),
	} {
		if size%8 != 0 {
			t.Errorf("%s has %d bytes, which is no multiple of 8", name, size)
		}
	}
}

func TestChecksumsOfRouter(t *testing.T) {
	b := newRouteBed(t, Options{NoMirror: true})
	in := b.packet("10.1.0.2", "192.0.2.5", 0, 64)
	for _, either := range []bool{false, true} {
		testbed.EachUint16(t, func(n uint16) {
			testbed.SetIPv4ID(in[14:], n)
			if check := binary.BigEndian.Uint16(in[24:]); either && check == 0 {
				in[24], in[25] = 0xff, 0xff // which says the same
			} else if either {
				return
			}
			action, out, err := b.inst.TestRunIndex(in, b.west.Index)
			b.must(err)
			if action != testbed.XDPRedirect {
				t.Fatalf("action %d for %x", action, in)
			}
			testbed.CheckIPv4Sum(t, out[14:])
		})
	}
}

// Packets from one interface do not use up the limit of what others may pass to the kernel.
func TestRouteLimitsByInterface(t *testing.T) {
	b := newRouteBed(t, Options{NoMirror: true})
	b.must(b.inst.SetLimit(bpfobj.PipelineReasonPUNT_ROUTE_TTL, bpfobj.PipelineLimit{Interval: 1 << 58}))
	frame := b.packet("10.1.0.2", "192.0.2.5", 0, 1)
	run := func(dev *net.Interface) (action uint32) {
		t.Helper()
		copy(frame, dev.HardwareAddr)
		action, _, err := b.inst.TestRun(frame, dev.Name)
		b.must(err)
		return action
	}
	// The first packet is within the interface's own limit, the second within the shared one.
	for n, want := range []uint32{testbed.XDPPass, testbed.XDPPass, testbed.XDPDrop, testbed.XDPDrop} {
		if got := run(b.west); got != want {
			t.Errorf("packet %d by west: action %d, want %d", n+1, got, want)
		}
	}
	if got := run(b.east); got != testbed.XDPPass {
		t.Errorf("first packet by east: action %d, want %d", got, testbed.XDPPass)
	}
}

// The verifier must accept both stages in one program, which is larger than each by itself.
func TestRouteBesideSCION(t *testing.T) {
	attachBeside(t)
}

// TestLBWithAllStages puts all stages in one program, which the verifier must accept. Older verifiers count stack and
// paths differently.
func TestLBWithAllStages(t *testing.T) {
	attachBeside(t, lbplane.NewPart(lbplane.Options{}))
}

// attachBeside attaches the IP router with the SCION router and other parts.
func attachBeside(t *testing.T, others ...datapath.Part) {
	t.Helper()
	testbed.InNamespace(t)
	testbed.AddVeth(t, "west", "westp")
	scion := scionplane.NewPart(scionplane.Config{
		LocalIA: 0x1_ff00_0000_0110,
		Links: []scionplane.Link{
			{Name: "internal", Local: netip.MustParseAddrPort("10.0.0.1:30042")},
			{
				Name: "1", Scope: scionplane.ScopeExternal, IfID: 1, NeighborIA: 0x1_ff00_0000_0111,
				Local: netip.MustParseAddrPort("10.0.1.1:50000"), Remote: netip.MustParseAddrPort("10.0.1.2:50000"),
			},
			{
				Name: "2", Scope: scionplane.ScopeExternal, IfID: 2, NeighborIA: 0x1_ff00_0000_0112,
				Local: netip.MustParseAddrPort("10.0.2.1:50000"), Remote: netip.MustParseAddrPort("10.0.2.2:50000"),
			},
		},
		Interfaces: []scionplane.Interface{{ID: 1, Link: 1, Type: scionplane.LinkCore}, {ID: 2, Link: 2, Type: scionplane.LinkCore}},
		PortStart:  31000, PortEnd: 32767,
	})
	inst, err := datapath.Attach(datapath.Options{
		Name: "br1", Interfaces: []string{"west"}, Temporary: true,
		Parts: append([]datapath.Part{scion, NewPart(Options{Blocks4: 1, Blocks6: 1})}, others...),
	})
	if err != nil {
		t.Fatal(err)
	}
	inst.Close()
}
