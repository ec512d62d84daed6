// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"culvert/internal/route/routeplane"
)

// frame is the packet of a query, with a tag if vlan is not 0.
func frame(t *testing.T, to, from netip.Addr, mac net.HardwareAddr, vlan uint16) []byte {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: mac, EthernetType: layers.EthernetTypeIPv4}
	udp := &layers.UDP{SrcPort: 1000, DstPort: 2000}
	var ip gopacket.SerializableLayer
	if to.Is4() {
		v4 := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
		must(t, udp.SetNetworkLayerForChecksum(v4))
		ip = v4
	} else {
		eth.EthernetType = layers.EthernetTypeIPv6
		v6 := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolUDP, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
		must(t, udp.SetNetworkLayerForChecksum(v6))
		ip = v6
	}
	stack := []gopacket.SerializableLayer{eth}
	if vlan != 0 {
		stack = append(stack, &layers.Dot1Q{VLANIdentifier: vlan, Type: eth.EthernetType})
		eth.EthernetType = layers.EthernetTypeDot1Q
	}
	b := gopacket.NewSerializeBuffer()
	must(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		append(stack, ip, udp, gopacket.Payload("some payload, long enough for a frame"))...))
	return b.Bytes()
}

func (b *bed) reasons() map[string]uint64 {
	ports, err := b.inst.Ports()
	must(b.t, err)
	all := make(map[string]uint64)
	for _, p := range ports {
		for _, r := range p.Reasons {
			all[r.Verdict+" "+r.Name] += r.Packets
		}
	}
	return all
}

// TestProgram runs the program on packets for which decide has predicted the result. Reason and next hop must be the same.
func TestProgram(t *testing.T) {
	b := newBed(t, routeplane.Options{Blocks4: 4096, Blocks6: 4096})
	addRoutes(t)
	b.mirror()
	rng := rand.New(rand.NewPCG(4, 4))
	to := []netip.Addr{
		addr("192.0.2.7"), addr("192.0.2.200"), addr("2001:db8:1::5"), addr("2001:db8:2::5"), addr("10.2.0.9"), addr("10.2.0.1"),
		addr("10.2.0.255"), addr("203.0.113.1"), addr("10.2.0.66"), addr("10.50.0.1"), addr("10.60.0.1"), addr("10.70.0.1"),
		addr("198.51.100.1"), addr("198.51.100.130"), addr("198.51.100.200"), addr("172.16.0.1"), addr("224.0.0.5"),
		addr("240.0.0.1"), addr("0.0.0.1"), addr("127.0.0.1"), addr("fe80::7"), addr("ff02::1"), addr("::1"), addr("fd02::9"),
		addr("fd02::1"), addr("fd02::77"), addr("2003::1"), addr("10.3.0.9"),
	}
	for range 40 {
		to = append(to, randomIn(netip.MustParsePrefix("10.80.0.0/13")), randomIn(netip.MustParsePrefix("2001:db8:4000::/38")))
	}
	from := map[bool][]netip.Addr{
		false: {addr("10.1.0.2"), addr("10.2.0.1"), addr("10.2.0.5"), addr("127.0.0.1"), addr("172.16.0.1"), addr("198.51.100.1")},
		true:  {addr("fd01::2"), addr("fe80::1"), addr("ff02::1"), addr("2003::9"), addr("::")},
	}
	seen := make(map[string]bool)
	const forever = 1 << 62
	rpFilter := func(mode uint8) func() {
		return func() {
			must(t, b.plane.SetCurrent(forever, forever))
			b.setDev("west", func(d *routeplane.Dev) { d.RPFilter = mode })
		}
	}
	// Each phase changes the state that the previous one has left.
	for _, phase := range []struct {
		name  string
		setUp func()
		vlan  bool // south is a VLAN device on west
	}{
		{"current mirror", func() { must(t, b.plane.SetCurrent(forever, forever)) }, false},
		{"stale mirror", func() { must(t, b.plane.SetCurrent(0, 0)) }, false},
		{"strict source check", rpFilter(1), false},
		{"loose source check", rpFilter(2), false},
		{"full source check", func() { must(t, b.plane.SetPolicy(routeplane.Policy{FullCheck4: true})) }, false},
		// Not every kernel has VLAN devices, so south only poses as one.
		{"VLAN device", func() {
			must(t, b.plane.SetPolicy(routeplane.Policy{}))
			must(t, b.plane.SetCurrent(0, forever))
			must(t, b.plane.SetDev(b.index("south"), routeplane.Dev{
				Port: b.index("west"), VLAN: 0x1000 | 20, MAC: [6]byte(mac(t, "west")), Forward4: true, Forward6: true, Xmit: true,
			}))
		}, true},
		{"forwarding off", func() { b.setDev("east", func(d *routeplane.Dev) { d.Forward4 = false }) }, true},
	} {
		phase.setUp()
		v, err := newView(b.inst)
		must(t, err)
		v.patience = 0
		k, err := newKernel()
		must(t, err)
		defer k.close()
		f := predictor{b, v, k, phase.name, phase.vlan, seen}
		for n, dst := range to {
			sources := from[dst.Is6()]
			for _, in := range []string{"west", "east", "south"} {
				f.packet(dst, sources[0], in)
			}
			if n < 30 {
				for _, src := range sources {
					f.packet(dst, src, "west")
				}
			} else {
				f.packet(dst, sources[rng.IntN(len(sources))], "west")
			}
		}
	}
	for _, want := range []string{
		"fwd route", "fwd route-fib", "pass route-local", "pass route-off", "pass route-egress", "pass route-redirect",
		"pass route-kernel", "punt route-martian", "punt route-multicast", "punt route-none", "punt route-unreachable",
		"punt route-prohibit", "punt route-neighbor", "punt route-source", "drop route-blackhole",
	} {
		if !seen[want] {
			t.Errorf("nothing was counted as %s", want)
		}
	}
}

// predictor compares the predictions of decide with what the program does.
type predictor struct {
	*bed
	v     *view
	k     *kernel
	phase string
	vlan  bool            // south is a VLAN device on west
	seen  map[string]bool // verdicts and reasons that were counted
}

// packet predicts what the program does with a packet, and runs it.
func (b predictor) packet(to, from netip.Addr, in string) {
	b.t.Helper()
	d, answer, err := b.v.decide(query{to: to, from: from, in: b.index(in)}, b.k)
	must(b.t, err)
	port, vlan := in, uint16(0)
	if in == "south" {
		if !b.vlan {
			if d.verdict != "" {
				b.t.Errorf("%s %s predicted on a device without culvert", d.verdict, d.reason)
			}
			return
		}
		port, vlan = "west", 20
	}
	if answer.several && in == "east" {
		return // all next hops are on this device, so the packet would leave where it came in
	}
	frame := frame(b.t, to, from, mac(b.t, port), vlan)
	got, out := b.run(frame, port)
	for tries := 0; strings.Contains(got, ",") && tries < 10; tries++ { // the host sent packets of its own meanwhile, such as ARP
		got, out = b.run(frame, port)
	}
	want := d.verdict + " " + d.reason
	b.seen[got] = true
	if first := d.once && want == "fwd route" && got == "fwd route-fib"; got != want && !first {
		b.t.Errorf("%s: from %s to %s by %s: %s, predicted was %s (%s), kernel: %s", b.phase, from, to, in, got, want, d.why, b.k.text(answer))
		return
	}
	if d.verdict == "fwd" && d.hop.Action == routeplane.Forward && [6]byte(out[:6]) != d.hop.DstMAC {
		b.t.Errorf("%s: from %s to %s by %s: to %s, predicted was %s", b.phase, from, to, in, net.HardwareAddr(out[:6]), hardware(d.hop.DstMAC))
	}
}

// run sends a frame through the program. It returns the verdicts and reasons counted meanwhile, and the resulting frame.
func (b predictor) run(frame []byte, port string) (counted string, out []byte) {
	b.t.Helper()
	before := b.reasons()
	_, out, err := b.inst.TestRun(frame, port)
	must(b.t, err)
	var all []string
	for reason, n := range b.reasons() {
		for range n - before[reason] {
			all = append(all, reason)
		}
	}
	return strings.Join(all, ","), out
}

func mac(t *testing.T, name string) net.HardwareAddr {
	t.Helper()
	dev, err := net.InterfaceByName(name)
	must(t, err)
	return dev.HardwareAddr
}
