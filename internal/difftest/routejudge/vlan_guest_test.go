// SPDX-License-Identifier: Apache-2.0

//go:build guest

package routejudge

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"culvert/internal/route"
	"culvert/internal/route/routeplane"
)

// These tests need a kernel with VLAN and VRF devices as the judge. They run in guests with Debian's kernels.

// tagged inserts 802.1Q tags with the given VLAN IDs into a frame, the outermost first.
func tagged(frame []byte, ids ...uint16) []byte {
	for _, id := range slices.Backward(ids) {
		frame = slices.Insert(frame, 12, 0x81, 0x00, byte(id>>8), byte(id))
	}
	return frame
}

// lan4 and lan6 return the address of host n of a VLAN.
func lan4(vlan, n int) netip.Addr { return addr4(10, 2, vlan, n) }

func lan6(vlan, n int) netip.Addr {
	a := [16]byte{0: 0xfd, 3: 2, 5: byte(vlan)}
	binary.BigEndian.PutUint16(a[14:], uint16(n))
	return netip.AddrFrom16(a)
}

// vlans returns the commands that set up a VLAN on p0 and one on p1, each with a gateway to another network.
func vlans() string {
	var b strings.Builder
	for port, id := range map[int]int{0: 10, 1: 20} {
		dev := fmt.Sprintf("v%d", id)
		fmt.Fprintf(&b, "link add link p%d name %s type vlan id %d\nlink set %s up\n", port, dev, id, dev)
		fmt.Fprintf(&b, "addr add %v/24 dev %s\naddr add %v/64 nodad dev %s\n", lan4(id, 1), dev, lan6(id, 1), dev)
		fmt.Fprintf(&b, "neigh add %v lladdr %s dev %s nud permanent\n", lan4(id, 3), mac(hostMAC(port, 8)), dev)
		fmt.Fprintf(&b, "neigh add %v lladdr %s dev %s nud permanent\n", lan6(id, 3), mac(hostMAC(port, 8)), dev)
		fmt.Fprintf(&b, "route add 50.%d.0.0/16 via %v\nroute add 2001:db8:%d::/48 via %v\n", id, lan4(id, 3), id, lan6(id, 3))
	}
	b.WriteString("route add 51.0.0.0/16 via 10.1.2.4\nroute add 2001:db8:51::/48 via fd00:1:2::4\n")
	return b.String()
}

// tagKind returns a kind of packets that come in by a port with the given tags. Src has the source for IPv4 and for IPv6. Dst are
// the destinations, one of which each packet goes to.
func tagKind(name string, ordinary bool, port int, tags []uint16, src, dst []string) kind {
	return kind{name, func(g *generator, p *packet) {
		p.port = port
		to := netip.MustParseAddr(one(g, dst...))
		from := netip.MustParseAddr(src[0])
		if to.Is6() {
			from = netip.MustParseAddr(src[1])
		}
		g.src = func(int, bool) netip.Addr { return from }
		g.dst = func(int, bool) netip.Addr { return to }
		if to.Is4() {
			h := g.head4(p)
			p.frame = h.build()
		} else {
			p.frame = g.head6(p).build()
		}
		p.frame = tagged(p.frame, tags...)
		p.ordinary = p.ordinary && ordinary
	}}
}

func vlanKinds() []kind {
	far := []string{"50.20.1.2", "50.20.255.1", "2001:db8:20::1", "10.2.20.3", "fd00:2:20::3"}
	both := append([]string{"51.0.7.8", "2001:db8:51::9"}, far...)
	one := []string{"10.1.0.5", "fd00:1::5"}
	in := []string{"10.2.10.3", "fd00:2:10::3"}
	return []kind{
		tagKind("from a VLAN", true, 0, []uint16{10}, in, both),
		tagKind("from no VLAN", true, 2, nil, []string{"10.1.2.5", "fd00:1:2::5"}, append(far, "50.10.3.4", "2001:db8:10::5")),
		tagKind("from a VLAN back", false, 0, []uint16{10}, in, []string{"50.10.3.4", "2001:db8:10::5"}),
		tagKind("of a VLAN nobody has", false, 0, []uint16{11}, one, both),
		tagKind("of another port's VLAN", false, 2, []uint16{10}, one, both),
		tagKind("with a priority alone", false, 0, []uint16{0}, one, both),
		tagKind("with two priorities", false, 0, []uint16{0, 0}, one, both),
		tagKind("from a VLAN behind a priority", false, 0, []uint16{0, 10}, in, both),
		tagKind("from a VLAN with a priority behind it", false, 0, []uint16{10, 0}, in, both),
		tagKind("with two tags", false, 0, []uint16{10, 20}, one, both),
		tagKind("with a priority in the tag", true, 0, []uint16{5<<13 | 10}, in, both),
	}
}

// judgeTags tries packets of some kinds on twins that are set up by the commands in lines.
func judgeTags(t *testing.T, lines string, kinds []kind, takes flow) {
	pinToCPU(t)
	kernel, fast := newTwin(t), newTwin(t)
	for _, w := range []*twin{kernel, fast} {
		w.enter()
		w.ip(lines)
		// Discard the packets that a router sends when its VLAN devices come up.
		w.wire.drain()
	}
	c := newJudge(t, kernel, newGenerator(7))
	c.takes = flowAddresses
	if takes != flowNone {
		c.takes = takes
	}
	v := attach(fast, routeplane.Options{Blocks4: 256, Blocks6: 256})
	c.explain = v.explain
	v.startControlPlane(route.Options{})
	fast.enter()
	for _, k := range kinds {
		c.try(k, 40, v.fate)
	}
	c.report()
	t.Log(v.reasons())
	if v.reasons()["fwd route"]+v.reasons()["fwd route-fib"] == 0 {
		t.Error("nothing was forwarded")
	}
}

func TestVLANs(t *testing.T) { judgeTags(t, vlans(), vlanKinds(), flowInner) }

// TestVRF: packets that come in by the ports of a VRF are routed by the table of the VRF.
func TestVRF(t *testing.T) {
	lines := "link add red type vrf table 500\nlink set red up\n"
	for _, port := range []int{1, 2} {
		lines += fmt.Sprintf("link set p%d master red\n", port)
		lines += fmt.Sprintf("addr replace fd00:1:%d::1/64 nodad dev p%d\n", port, port)
		lines += fmt.Sprintf("neigh replace 10.1.%d.4 lladdr %s dev p%[1]d nud permanent\n", port, mac(hostMAC(port, 4)))
		lines += fmt.Sprintf("neigh replace fd00:1:%d::4 lladdr %s dev p%[1]d nud permanent\n", port, mac(hostMAC(port, 4)))
	}
	lines += "route add 60.0.0.0/16 via 10.1.2.4 dev p2 table 500\nroute add 2001:db8:60::/48 via fd00:1:2::4 dev p2 table 500\n" +
		"route add 61.0.0.0/16 via 10.1.0.4 dev p0\n"
	dst := []string{"60.0.1.2", "2001:db8:60::7", "61.0.0.1"}
	judgeTags(t, lines, []kind{
		tagKind("inside a VRF", true, 1, nil, []string{"10.1.1.5", "fd00:1:1::5"}, dst),
		tagKind("outside of it", true, 0, nil, []string{"10.1.0.5", "fd00:1::5"}, dst),
	}, flowAddresses)
}
