// SPDX-License-Identifier: Apache-2.0

package route

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/host/neigh"
	"culvert/internal/route/routeplane"
)

func (p *fakePlane) dev(index int) (routeplane.Dev, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d, ok := p.devs[index]
	return d, ok
}

// neighbour gives the next hop of a neighbour on a connected network.
func (p *fakePlane) neighbour(dev int, addr string) (number uint32, hop routeplane.Hop, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	number, ok = p.neighbours[routeplane.Neighbor{Dev: dev, Addr: netip.MustParseAddr(addr)}]
	return number, p.hops[number], ok
}

func TestSettings(t *testing.T) {
	b := newBed(t, newFakePlane(256, 1024))
	b.sysctl("ipv4/conf/all/rp_filter", "0")
	b.sysctl("ipv4/conf/cv0/rp_filter", "0")
	b.sysctl("ipv4/conf/all/send_redirects", "0")
	b.sysctl("ipv4/conf/cv0/send_redirects", "0")
	b.start(Options{})
	index := b.index("cv0")
	want, _ := b.plane.dev(index)
	if !want.Forward4 || !want.Forward6 || want.Port != index || want.VLAN != 0 || !want.Xmit || want.RPFilter != 0 || want.Redirects {
		t.Fatalf("%+v", want)
	}
	if _, ok := b.plane.dev(b.index("cv2")); ok {
		t.Error("a device without the program is known")
	}
	step := func(name, value string, change func(*routeplane.Dev)) {
		t.Helper()
		b.sysctl(name, value)
		change(&want)
		b.wait(name+"="+value, func() bool { got, _ := b.plane.dev(index); return got == want })
	}
	step("ipv4/conf/cv0/rp_filter", "1", func(d *routeplane.Dev) { d.RPFilter = 1 })
	step("ipv4/conf/all/rp_filter", "2", func(d *routeplane.Dev) { d.RPFilter = 2 })
	// Without an address the kernel takes only what would go back by the device, loose or not.
	b.ip("addr flush dev cv0 scope global")
	want.RPFilter = 1
	b.wait("strictness", func() bool { got, _ := b.plane.dev(index); return got == want })
	b.ip("addr add 10.9.0.1/24 dev cv0")
	want.RPFilter = 2
	b.wait("looseness", func() bool { got, _ := b.plane.dev(index); return got == want })
	step("ipv4/conf/cv0/forwarding", "0", func(d *routeplane.Dev) { d.Forward4 = false })
	step("ipv4/conf/all/send_redirects", "1", func(d *routeplane.Dev) { d.Redirects = true })
	step("ipv6/conf/cv0/forwarding", "0", func(d *routeplane.Dev) { d.Forward6 = false })
	b.sysctl("ipv6/conf/all/forwarding", "0")
	b.wait("IPv6 to be left to the kernel", func() bool { p := b.plane.policyNow(); return p.Kernel6 && !p.Kernel4 })
	b.sysctl("ipv4/fib_multipath_hash_policy", "1")
	b.wait("the hash policy", func() bool { return b.plane.policyNow().Hash4 == 1 })
	b.sysctl("ipv4/ip_forward_use_pmtu", "1")
	b.wait("the mirror to be out of use", func() bool { return b.status.Load().IPv4.Reason == reasonPathMTU })
}

func TestIPsec(t *testing.T) {
	b := newBed(t, newFakePlane(256, 1024))
	b.start(Options{})
	if p := b.plane.policyNow(); p.Kernel4 || p.Kernel6 {
		t.Fatalf("%+v without any policy", p)
	}
	b.ip("xfrm policy add src 10.80.0.0/16 dst 10.81.0.0/16 dir fwd action block")
	b.wait("IPv4 to be left to the kernel", func() bool { p := b.plane.policyNow(); return p.Kernel4 && !p.Kernel6 })
	b.ip("xfrm policy deleteall")
	b.wait("IPv4 to be back", func() bool { return !b.plane.policyNow().Kernel4 })
}

func TestDeviceChanges(t *testing.T) {
	b := newBed(t, newFakePlane(256, 1024))
	b.ip("route add 10.1.0.0/16 via 10.9.0.2\nroute add 2001:db8:1::/48 via fd09:0::2")
	b.start(Options{})
	index := b.index("cv0")
	hop := func(a string) routeplane.Hop { b.barrier(); return b.plane.ask(netip.MustParseAddr(a)) }
	before := hop("10.1.1.1")
	b.ip("link set cv0 mtu 1400")
	if got := hop("10.1.1.1"); got.MTU != 1400 || before.MTU != 1500 {
		t.Errorf("%+v, then %+v", before, got)
	}
	b.sysctl("ipv6/conf/cv0/mtu", "1300")
	b.wait("the MTU of IPv6", func() bool { return hop("2001:db8:1::1").MTU == 1300 && hop("10.1.1.1").MTU == 1400 })
	// This makes the kernel forget the device's neighbours.
	b.ip("link set cv0 address 02:00:00:00:00:77\nneigh replace 10.9.0.2 dev cv0 lladdr 02:04:0a:09:00:02 nud permanent")
	if got := hop("10.1.1.1"); got.SrcMAC != [6]byte{2, 0, 0, 0, 0, 0x77} {
		t.Errorf("%+v", got)
	}
	if dev, _ := b.plane.dev(index); dev.MAC != [6]byte{2, 0, 0, 0, 0, 0x77} {
		t.Errorf("%+v", dev)
	}
	// Without the program on it, no frames can be redirected to it.
	b.plane.mu.Lock()
	b.plane.attached = []string{"cv1"}
	b.plane.mu.Unlock()
	b.wait("the device to be elsewhere", func() bool {
		h := hop("10.1.1.1")
		_, known := b.plane.dev(index)
		_, _, neighbour := b.plane.neighbour(index, "10.9.0.2")
		return h == routeplane.Hop{Action: routeplane.Elsewhere, Dev: index} && !known && !neighbour
	})
	b.plane.mu.Lock()
	b.plane.attached = []string{"cv0", "cv1"}
	b.plane.mu.Unlock()
	b.wait("the device to be back", func() bool { return hop("10.1.1.1").Action == routeplane.Forward })
	// A port of a bridge does not forward by itself.
	check(t, b.own.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	b.ip("link set cv0 master br0")
	b.barrier()
	if dev, _ := b.plane.dev(index); dev.Forward4 || dev.Forward6 || dev.Xmit {
		t.Errorf("%+v", dev)
	}
	if got := hop("10.1.1.1"); got.Action != routeplane.Elsewhere {
		t.Errorf("%+v", got)
	}
}

// A device that is renamed carries the program as before, and the log says nothing else; of one that carries it no more it
// does, by its name of now.
func TestRenamedDeviceCarries(t *testing.T) {
	b := newBed(t, newFakePlane(256, 1024))
	b.start(Options{})
	first, second := b.index("cv0"), b.index("cv1")
	carry := func(indexes []int, names ...string) {
		b.plane.mu.Lock()
		b.plane.attached, b.plane.indexes = names, indexes
		before := b.plane.asked
		b.plane.mu.Unlock()
		b.wait("it to be asked for", func() bool {
			b.plane.mu.Lock()
			defer b.plane.mu.Unlock()
			return b.plane.asked > before+1 // the first answer has been taken in by the second question
		})
	}
	known := func(index int) bool { _, ok := b.plane.dev(index); return ok }
	const lost = "an interface does not carry the program any more"
	carry([]int{first, second}, "cv0", "cv1")
	b.wait("the devices", func() bool { return known(first) && known(second) })
	b.ip("link set cv0 down\nlink set cv0 name was0\nlink set was0 up")
	carry([]int{first, second}, "was0", "cv1")
	b.wait("the renamed device", func() bool { return known(first) && known(second) })
	if text := b.log.String(); strings.Contains(text, lost) {
		t.Errorf("said of a renamed device:\n%s", text)
	}
	carry([]int{second}, "cv1")
	b.wait("the log", func() bool { return strings.Contains(b.log.String(), lost) })
	if text := b.log.String(); !strings.Contains(text, "interface=was0") || strings.Count(text, lost) != 1 {
		t.Errorf("said:\n%s", text)
	}
	// Nor of one that is deleted: nothing comes in by that.
	b.ip("link del cv1")
	carry(nil)
	if text := b.log.String(); strings.Count(text, lost) != 1 {
		t.Errorf("said of a deleted device:\n%s", text)
	}
}

func TestNeighbours(t *testing.T) {
	b := newBed(t, newFakePlane(256, 1024))
	b.ip("route add 10.1.0.0/16 via 10.9.0.2\nroute add 10.2.0.0/16 via 10.9.0.50")
	peer, err := b.peer.LinkByName("cv0p")
	check(t, err)
	for _, text := range []string{"10.9.0.50/24", "10.9.0.51/24", "10.9.0.52/24"} {
		addr, err := netlink.ParseAddr(text)
		check(t, err)
		check(t, b.peer.AddrAdd(peer, addr))
	}
	b.start(Options{})
	index := b.index("cv0")
	number, hop, ok := b.plane.neighbour(index, "10.9.0.2")
	want := b.plane.ask(netip.MustParseAddr("10.1.1.1"))
	if !ok || hop != want || number < routeplane.HopFirst || want.Action != routeplane.Forward {
		t.Fatalf("connected %+v, gateway %+v", hop, want)
	}
	// The gateway that is not known is asked for.
	b.wait("the gateway to be found", func() bool {
		h := b.plane.ask(netip.MustParseAddr("10.2.1.1"))
		return h.Action == routeplane.Forward && net.HardwareAddr(h.DstMAC[:]).String() == peer.Attrs().HardwareAddr.String()
	})
	// Changes are made in place.
	b.ip("neigh replace 10.9.0.2 dev cv0 lladdr 02:00:00:00:00:99 nud permanent")
	b.barrier()
	again, hop, _ := b.plane.neighbour(index, "10.9.0.2")
	if again != number || hop.DstMAC != [6]byte{2, 0, 0, 0, 0, 0x99} || b.plane.ask(netip.MustParseAddr("10.1.1.1")) != hop {
		t.Errorf("%+v", hop)
	}
	b.ip("neigh del 10.9.0.2 dev cv0")
	b.barrier()
	if _, hop, ok := b.plane.neighbour(index, "10.9.0.2"); ok {
		t.Errorf("a neighbour that is gone has %+v", hop)
	}
	if got := b.plane.ask(netip.MustParseAddr("10.1.1.1")); got != (routeplane.Hop{Action: routeplane.Resolve, Dev: index}) {
		t.Errorf("%+v", got)
	}
	b.plane.mu.Lock()
	if h := b.plane.hops[number]; h.Action != routeplane.Ask {
		t.Errorf("the number of a neighbour that is gone still leads to %+v", h)
	}
	b.plane.mu.Unlock()
}

// TestConfirm looks that a stale neighbour is confirmed while the programs send to it, and else left alone.
func TestConfirm(t *testing.T) {
	b := newBed(t, newFakePlane(256, 1024))
	peer, err := b.peer.LinkByName("cv0p")
	check(t, err)
	mac := peer.Attrs().HardwareAddr.String()
	for _, text := range []string{"10.9.0.51/24", "10.9.0.52/24"} {
		addr, err := netlink.ParseAddr(text)
		check(t, err)
		check(t, b.peer.AddrAdd(peer, addr))
	}
	b.ip("neigh add 10.9.0.51 dev cv0 lladdr " + mac + " nud stale\nneigh add 10.9.0.52 dev cv0 lladdr " + mac + " nud stale")
	b.start(Options{})
	index := b.index("cv0")
	number, _, ok := b.plane.neighbour(index, "10.9.0.51")
	if !ok {
		t.Fatal("a stale neighbour is not known")
	}
	b.plane.mu.Lock()
	b.plane.used[number] = monotonic()
	b.plane.mu.Unlock()
	state := func(addr string) int {
		list, err := neigh.Dump(func() ([]netlink.Neigh, error) { return b.own.NeighList(index, unix.AF_INET) })
		check(t, err)
		for _, n := range list {
			if n.IP.String() == addr {
				return n.State
			}
		}
		return 0
	}
	b.wait("the neighbour in use to be confirmed", func() bool { return state("10.9.0.51")&unix.NUD_STALE == 0 })
	if got := state("10.9.0.52"); got != unix.NUD_STALE {
		t.Errorf("the neighbour that is not in use has state %#x", got)
	}
}

func TestNumbers(t *testing.T) {
	var now time.Duration
	n := newNumbers(func() time.Duration { return now })
	first, _ := n.take()
	for {
		if _, ok := n.take(); !ok {
			break
		}
	}
	if want := routeplane.MaxHops - routeplane.HopFirst; n.used != want {
		t.Errorf("%d numbers, want %d", n.used, want)
	}
	n.give(first)
	now = numberGrace
	if _, ok := n.take(); ok {
		t.Error("a number is given out again at once")
	}
	now++
	if again, ok := n.take(); !ok || again != first {
		t.Errorf("%d %v, want %d", again, ok, first)
	}
}

// TestVLAN takes devices as netlink tells of them, since not every kernel has VLANs.
func TestVLAN(t *testing.T) {
	const readyNow = unix.IFF_UP | unix.IFF_RUNNING
	link := func(name string, index, parent, master int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Name: name, Index: index, ParentIndex: parent, MasterIndex: master, MTU: 1500 - index, NetNsID: -1,
			EncapType: "ether", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, byte(index)}, RawFlags: readyNow}
	}
	vlan := func(a netlink.LinkAttrs, id int, protocol netlink.VlanProtocol) netlink.Link {
		return &netlink.Vlan{LinkAttrs: a, VlanId: id, VlanProtocol: protocol}
	}
	const dot1q, dot1ad = netlink.VLAN_PROTOCOL_8021Q, netlink.VLAN_PROTOCOL_8021AD
	abroad := link("abroad", 9, 1, 0)
	abroad.NetNsID = 3
	plane := newFakePlane(1, 1)
	f := &feed{plane: plane, attached: map[string]bool{"port": true, "slave": true}, devices: map[int]device{},
		abilities: map[int]ability{}, neighbours: neigh.Table{}, confs: map[int]conf{}, numbers: newNumbers(monotonic),
		connected:  map[gatewayKey]*connected{},
		pushedDevs: map[int]routeplane.Dev{}}
	f.descs = newDescriptors(f.numbers)
	for _, l := range []netlink.Link{
		&netlink.Device{LinkAttrs: link("port", 1, 0, 0)},
		&netlink.Device{LinkAttrs: link("other", 2, 0, 0)},
		vlan(link("port.7", 3, 1, 0), 7, dot1q),
		vlan(link("port.8", 4, 1, 0), 8, dot1ad),
		vlan(link("port.7.9", 5, 3, 0), 9, dot1q),
		vlan(link("other.7", 6, 2, 0), 7, dot1q),
		&netlink.Device{LinkAttrs: link("slave", 7, 0, 2)},
		vlan(link("slave.7", 8, 7, 0), 7, dot1q),
		vlan(abroad, 7, dot1q),
		vlan(link("port.10", 10, 1, 2), 10, dot1q),
		&netlink.Vrf{LinkAttrs: link("vrf", 11, 0, 0)},
		vlan(link("port.12", 12, 1, 11), 12, dot1q),
	} {
		f.setDevice(l.Attrs().Index, deviceOf(l))
	}
	via := netip.MustParseAddr("10.0.0.1")
	for index := range f.devices {
		f.neighbours[gatewayKey{IfIndex: index, Addr: via}] = neigh.Entry{State: unix.NUD_REACHABLE, MAC: [6]byte{9}}
	}
	for index, want := range map[int]routeplane.Hop{
		1:  {Action: routeplane.Forward, Port: 1, MTU: 1499},
		3:  {Action: routeplane.Forward, Port: 1, VLAN: 0x1007, MTU: 1497},
		12: {Action: routeplane.Forward, Port: 1, VLAN: 0x100c, MTU: 1488},
		2:  {}, 4: {}, 5: {}, 6: {}, 7: {}, 8: {}, 9: {}, 10: {},
	} {
		want.Dev = index
		if want.Action == routeplane.Forward {
			want.SrcMAC, want.DstMAC = [6]byte{2, 0, 0, 0, 0, byte(index)}, [6]byte{9}
		} else {
			want.Action = routeplane.Elsewhere
		}
		got, _ := f.hopOf(&descriptor{descKey: descKey{action: routeplane.Forward, dev: index, gateway: via}})
		if got != want {
			t.Errorf("%s: %+v, want %+v", f.devices[index].name, got, want)
		}
	}
	f.syncDevices()
	for index, want := range map[int]bool{1: true, 3: true, 12: true, 7: true, 8: true, 10: true, 2: false, 4: false, 5: false, 6: false, 9: false} {
		if dev, ok := plane.dev(index); ok != want || ok && index == 3 && (dev.Port != 1 || dev.VLAN != 0x1007 || !dev.Xmit) {
			t.Errorf("%s: known %v, want %v: %+v", f.devices[index].name, ok, want, dev)
		} else if (index == 7 || index == 8 || index == 10) && dev.Xmit {
			t.Errorf("%s is to be sent to", f.devices[index].name)
		}
	}
}
