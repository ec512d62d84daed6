// SPDX-License-Identifier: Apache-2.0

package pipelinefuzz

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"culvert/internal/route/lpm"
	"culvert/internal/route/routeplane"
)

// prefix is a route of the mirror.
type prefix struct {
	netip.Prefix
	hop uint32
}

// Next hops of the mirror besides the fixed ones.
const (
	hopPlain = routeplane.HopFirst + iota
	hopTagged
	hopSmall
	hopLinear
	hopBack // out of device 0
	hopResolve
	hopConnected
	hopNeighbor
	hopKernel // the kernel's next hop for destinations for which it is asked
)

var (
	plainMAC  = [6]byte{2, 0, 0, 8, 0, 1}
	kernelMAC = [6]byte{2, 0, 0, 8, 0, 2}
)

// VLANs by which packets come in and leave.
const (
	vlanIn  = 30
	vlanOut = 20
)

// strictPort and loosePort are the devices with a strict and a loose rp_filter.
const (
	strictPort = 3
	loosePort  = 4
)

var ownAddrs = []netip.Addr{addr("192.0.2.1"), addr("198.18.0.2")}

// fillRoutes makes routes of all kinds, in the mirror and in the kernel.
func (b *bed) fillRoutes() (err error) {
	if b.router, err = routeplane.Open(b.inst); err != nil {
		return err
	}
	b.closer(b.router.Close)
	dev := func(n int) int { return b.net.Devices[n].IfIndex }
	hop := func(out int, h routeplane.Hop) routeplane.Hop {
		h.Action, h.Port, h.SrcMAC = routeplane.Forward, dev(out), b.net.Devices[out].MAC
		if h.Dev == 0 {
			h.Dev = h.Port
		}
		if h.DstMAC == [6]byte{} {
			h.DstMAC = plainMAC
		}
		if h.MTU == 0 {
			h.MTU = 1500
		}
		return h
	}
	b.hops = map[uint32]routeplane.Hop{
		hopPlain: hop(1, routeplane.Hop{}), hopTagged: hop(2, routeplane.Hop{Dev: 1000, VLAN: 0x1000 | vlanOut}),
		hopSmall: hop(1, routeplane.Hop{MTU: 600}), hopLinear: hop(2, routeplane.Hop{MTU: 9000, LinearOnly: true}),
		hopBack: hop(0, routeplane.Hop{MTU: 9000}), hopNeighbor: hop(2, routeplane.Hop{DstMAC: [6]byte{2, 0, 0, 8, 0, 3}}),
		hopResolve:   {Action: routeplane.Resolve, Dev: dev(1)},
		hopConnected: {Action: routeplane.Connected, Dev: dev(2), MTU: 1500},
	}
	for n, h := range b.hops {
		if err := b.router.SetHop(n, h); err != nil {
			return err
		}
	}
	for n, action := range map[uint32]routeplane.Action{
		routeplane.HopAsk: routeplane.Ask, routeplane.HopNone: routeplane.None, routeplane.HopLocal: routeplane.Local,
		routeplane.HopUnreachable: routeplane.Unreachable, routeplane.HopProhibit: routeplane.Prohibit,
		routeplane.HopBlackhole: routeplane.Blackhole, routeplane.HopElsewhere: routeplane.Elsewhere,
	} {
		b.hops[n] = routeplane.Hop{Action: action}
	}
	b.hops[hopKernel] = hop(1, routeplane.Hop{DstMAC: kernelMAC, MTU: deviceMTU})
	for _, r := range []struct {
		to  string
		hop uint32
	}{
		{"203.0.113.0/24", hopPlain}, {"203.0.113.128/25", hopTagged}, {"203.0.113.200/32", routeplane.HopBlackhole},
		{"203.0.113.201/32", routeplane.HopUnreachable}, {"203.0.113.202/32", routeplane.HopProhibit},
		{"203.0.113.203/32", routeplane.HopNone}, {"203.0.113.204/32", hopResolve}, {"203.0.113.205/32", routeplane.HopElsewhere},
		{"203.0.113.206/32", hopSmall}, {"203.0.113.207/32", hopLinear}, {"203.0.113.208/32", hopBack},
		{"198.51.100.0/24", hopBack}, {"10.60.0.0/16", hopConnected}, {"192.0.2.0/24", routeplane.HopLocal}, {"198.18.0.0/15", routeplane.HopLocal},
		{"2001:db8:113::/48", hopPlain}, {"2001:db8:113:8000::/49", hopTagged}, {"2001:db8:113::200/128", routeplane.HopBlackhole},
		{"2001:db8:113::201/128", routeplane.HopUnreachable}, {"2001:db8:113::202/128", routeplane.HopProhibit},
		{"2001:db8:113::203/128", routeplane.HopNone}, {"2001:db8:113::204/128", hopResolve}, {"2001:db8:113::205/128", routeplane.HopElsewhere},
		{"2001:db8:113::206/128", hopSmall}, {"2001:db8:113::207/128", hopLinear}, {"2001:db8:113::208/128", hopBack},
		{"2001:db8:60::/64", hopConnected}, {"2001:db8::/64", routeplane.HopLocal}, {"2001:db8:18::/64", routeplane.HopLocal},
	} {
		b.routes = append(b.routes, prefix{netip.MustParsePrefix(r.to), r.hop})
	}
	for _, l := range b.net.Links {
		b.routes = append(b.routes, prefix{netip.PrefixFrom(l.Local.Addr(), l.Local.Addr().BitLen()), routeplane.HopLocal})
	}
	root4, blocks4 := b.router.Table4()
	root6, blocks6 := b.router.Table6()
	table4, table6 := lpm.New(root4, blocks4, 32), lpm.New(root6, blocks6, 128)
	for _, r := range b.routes {
		table := table4
		if r.Addr().Is6() {
			table = table6
		}
		if !table.Insert(r.Prefix, r.hop) {
			return fmt.Errorf("no room in the mirror for %v", r.Prefix)
		}
	}
	for _, a := range []string{"10.60.0.9", "2001:db8:60::9"} {
		if err := b.router.SetNeighbor(routeplane.Neighbor{Dev: dev(2), Addr: addr(a)}, hopNeighbor); err != nil {
			return err
		}
	}
	b.devs = make(map[int]routeplane.Dev)
	for n, d := range b.net.Devices {
		b.devs[d.IfIndex] = routeplane.Dev{
			Port: d.IfIndex, MAC: d.MAC, Forward4: true, Forward6: true, Xmit: true, RPFilter: map[int]uint8{strictPort: 1, loosePort: 2}[n],
			Redirects: n == 0,
		}
	}
	b.devs[vlanIndex] = routeplane.Dev{Port: dev(0), VLAN: 0x1000 | vlanIn, MAC: b.net.Devices[0].MAC, Forward4: true}
	for n, d := range b.devs {
		if err := b.router.SetDev(n, d); err != nil {
			return err
		}
	}
	return errors.Join(b.router.SetOwn4(ownAddrs), b.router.SetPolicy(routeplane.Policy{}), b.kernelRoutes())
}

// kernelRoutes are the routes that the mirror does not have.
func (b *bed) kernelRoutes() error {
	out := port(1)
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+out+"/disable_ipv6", []byte("0"), 0); err != nil {
		return err
	}
	mac := fmt.Sprintf("%x:%x:%x:%x:%x:%x", kernelMAC[0], kernelMAC[1], kernelMAC[2], kernelMAC[3], kernelMAC[4], kernelMAC[5])
	for _, cmd := range []string{
		"addr add 10.77.0.1/24 dev " + out, "neigh replace 10.77.0.9 lladdr " + mac + " dev " + out + " nud permanent",
		"neigh replace fe80::9 lladdr " + mac + " dev " + out + " nud permanent",
		"route add 100.64.0.0/16 via 10.77.0.9 dev " + out, "route add 2001:db8:6400::/48 via fe80::9 dev " + out,
		"route add blackhole 100.65.0.0/16", "route add unreachable 100.66.0.0/16", "route add prohibit 100.67.0.0/16",
		"route add 100.68.0.0/16 via 10.77.0.8 dev " + out, "route add blackhole 2001:db8:6500::/48",
	} {
		if err := ip(cmd); err != nil {
			return err
		}
	}
	return nil
}

// kernelRouted are the destinations that the kernel forwards to.
var kernelRouted = []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("2001:db8:6400::/48")}

// kernelBlackholes are those that it drops packets to.
var kernelBlackholes = []netip.Prefix{netip.MustParsePrefix("100.65.0.0/16"), netip.MustParsePrefix("2001:db8:6500::/48")}

func within(all []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(a) })
}

// way returns the next hop of a destination. asked is true if it is the kernel's answer.
func (b *bed) way(dst netip.Addr) (h routeplane.Hop, asked bool) {
	best := prefix{}
	for _, r := range b.routes {
		if r.Contains(dst) && (!best.IsValid() || r.Bits() > best.Bits()) {
			best = r
		}
	}
	h = b.hops[best.hop]
	if h.Action == routeplane.Connected {
		if dst != addr("10.60.0.9") && dst != addr("2001:db8:60::9") {
			return routeplane.Hop{}, true // the kernel has no route there
		}
		h = b.hops[hopNeighbor]
	}
	if h.Action == routeplane.Ask {
		if within(kernelRouted, dst) {
			return b.hops[hopKernel], true
		}
		if within(kernelBlackholes, dst) {
			return routeplane.Hop{Action: routeplane.Blackhole}, true
		}
		return routeplane.Hop{}, true
	}
	return h, false
}

// routeIn returns the device by which a packet comes in, if that device forwards.
func (b *bed) routeIn(tr trial, v *view) (index int, d routeplane.Dev, ok bool) {
	tag := v.tag(tr.frame)
	for index, d := range b.devs {
		if d.Port == b.net.Devices[tr.in].IfIndex && int(d.VLAN&0xfff) == tag {
			return index, d, bytes.Equal(tr.frame[:6], d.MAC[:]) && (d.Forward4 && v.ip == 4 || d.Forward6 && v.ip == 6)
		}
	}
	return 0, d, false
}

// noWay returns why Linux would not forward a packet, wherever it comes in. It returns "" if Linux would, by next hop h.
func (b *bed) noWay(index int, in routeplane.Dev, v *view) (h routeplane.Hop, asked bool, why string) {
	h, asked = b.way(v.dst)
	switch {
	case v.ip == 4 && v.head != 20:
		return h, asked, "it has options"
	case v.ip == 6 && v.proto == 0:
		return h, asked, "it has hop-by-hop options"
	case v.ttl <= 1:
		return h, asked, "its TTL is used up"
	case martian(v.src) || martian(v.dst) || v.src == netip.IPv4Unspecified() || v.ip == 4 && slices.Contains(ownAddrs, v.src):
		return h, asked, "it has an address that nobody may have"
	case h.Action != routeplane.Forward:
		return h, asked, "no way leads out"
	case len(v.packet) > int(h.MTU):
		return h, asked, "it is too long"
	case h.Dev == index && (v.ip == 6 || in.Redirects):
		return h, asked, "it leaves where it came in"
	}
	if v.ip == 4 && in.RPFilter != 0 {
		back, _ := b.way(v.src)
		if back.Action == 0 || back.Action == routeplane.Blackhole || in.RPFilter == 1 && back.Dev != index {
			return h, asked, "its source is not behind the device"
		}
	}
	return h, asked, ""
}

// martian reports whether packets from or to an address are never forwarded.
func martian(a netip.Addr) bool {
	if a.Is4() {
		first := a.As4()[0]
		return first == 127 || first >= 224 && first < 240 || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || a == netip.IPv4Unspecified()
	}
	b := a.As16()
	return a.IsMulticast() || a.IsLinkLocalUnicast() || be.Uint64(b[:8]) == 0
}

// checkRoute checks a packet with a reason of the IP router.
func (b *bed) checkRoute(tr trial, o outcome) error {
	if !b.on.route {
		return errors.New("there is no IP router")
	}
	v := decode(tr.frame)
	switch o.reason {
	case "drop route-blackhole":
		if h, _ := b.way(v.dst); v.ip == 0 || h.Action != routeplane.Blackhole {
			return fmt.Errorf("%v is no blackhole", v.dst)
		}
	case "fwd route", "fwd route-fib":
		index, in, ok := b.routeIn(tr, &v)
		if !ok {
			return errors.New("nothing is forwarded from there")
		}
		h, asked, why := b.noWay(index, in, &v)
		if why != "" {
			return fmt.Errorf("it was forwarded though %s", why)
		}
		if h.LinearOnly && tr.linear() < len(tr.frame) {
			return errors.New("a frame of several buffers went to a device that takes none")
		}
		if asked != (o.reason == "fwd route-fib") {
			return fmt.Errorf("the kernel has to be asked: %v", asked)
		}
		if want := forwarded(tr, &v, h); !bytes.Equal(o.frame, want) {
			return fmt.Errorf("it was to leave as\n%x", want[:min(len(want), 300)])
		}
	}
	return nil
}

// forwarded returns a packet as Linux forwards it.
func forwarded(tr trial, v *view, h routeplane.Hop) []byte {
	out := slices.Concat(h.DstMAC[:], h.SrcMAC[:])
	if h.VLAN != 0 {
		out = be.AppendUint16(be.AppendUint16(out, typeVLAN), h.VLAN&0xfff)
	}
	out = be.AppendUint16(out, v.kind)
	packet := bytes.Clone(v.packet)
	if v.ip == 4 {
		packet[8]--
		packet[10], packet[11] = 0, 0
		be.PutUint16(packet[10:], ^sum(packet[:20]))
	} else {
		packet[7]--
	}
	out = append(out, packet...)
	// Padding to Ethernet's minimum size stays.
	end := v.l3 + len(packet)
	return append(out, tr.frame[end:end+tr.unseen(v, 60)]...)
}

// checkNotRoute checks that a packet that was not forwarded is not an ordinary packet with a next hop.
func (b *bed) checkNotRoute(tr trial, o outcome) error {
	v := decode(tr.frame)
	if !b.on.route || o.reason == "fwd route" || o.reason == "fwd route-fib" || !b.untouched(tr, &v, o) || b.isVIP(v.dst) {
		return nil
	}
	if _, _, ok := v.ports(); !ok || v.frag {
		return nil
	}
	index, in, ok := b.routeIn(tr, &v)
	if !ok {
		return nil
	}
	if h, _, why := b.noWay(index, in, &v); why == "" && !(h.LinearOnly && tr.linear() < len(tr.frame)) {
		return fmt.Errorf("a packet to %v was not forwarded", v.dst)
	}
	return nil
}
