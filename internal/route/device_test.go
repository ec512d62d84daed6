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
	"culvert/internal/host/netdev"
	"culvert/internal/route/routeplane"
)

func (p *fakePlane) dev(index int) (routeplane.Dev, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d, ok := p.devs[index]
	return d, ok
}

// neighbor returns the next hop of a neighbor on a connected network, and its number.
func (p *fakePlane) neighbor(dev int, addr string) (number uint32, hop routeplane.Hop, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	number, ok = p.neighbors[routeplane.Neighbor{Dev: dev, Addr: netip.MustParseAddr(addr)}]
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
	sysctl := func(name, value string) func() { return func() { b.sysctl(name, value) } }
	ip := func(batch string) func() { return func() { b.ip(batch) } }
	for _, step := range []struct {
		name   string
		do     func()
		change func(*routeplane.Dev)
	}{
		{"strict source check", sysctl("ipv4/conf/cv0/rp_filter", "1"), func(d *routeplane.Dev) { d.RPFilter = 1 }},
		{"loose source check", sysctl("ipv4/conf/all/rp_filter", "2"), func(d *routeplane.Dev) { d.RPFilter = 2 }},
		// On a device without an address the kernel's loose check works as the strict one.
		{"strict without an address", ip("addr flush dev cv0 scope global"), func(d *routeplane.Dev) { d.RPFilter = 1 }},
		{"loose with an address", ip("addr add 10.9.0.1/24 dev cv0"), func(d *routeplane.Dev) { d.RPFilter = 2 }},
		{"no forwarding of IPv4", sysctl("ipv4/conf/cv0/forwarding", "0"), func(d *routeplane.Dev) { d.Forward4 = false }},
		{"redirects", sysctl("ipv4/conf/all/send_redirects", "1"), func(d *routeplane.Dev) { d.Redirects = true }},
		{"no forwarding of IPv6", sysctl("ipv6/conf/cv0/forwarding", "0"), func(d *routeplane.Dev) { d.Forward6 = false }},
	} {
		step.do()
		step.change(&want)
		b.wait(step.name, func() bool { got, _ := b.plane.dev(index); return got == want })
	}
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
	// This makes the kernel forget the device's neighbors.
	b.ip("link set cv0 address 02:00:00:00:00:77\nneigh replace 10.9.0.2 dev cv0 lladdr 02:04:0a:09:00:02 nud permanent")
	if got := hop("10.1.1.1"); got.SrcMAC != [6]byte{2, 0, 0, 0, 0, 0x77} {
		t.Errorf("%+v", got)
	}
	if dev, _ := b.plane.dev(index); dev.MAC != [6]byte{2, 0, 0, 0, 0, 0x77} {
		t.Errorf("%+v", dev)
	}
	// No frames can be redirected to a device without the program.
	b.plane.mu.Lock()
	b.plane.attached = []string{"cv1"}
	b.plane.mu.Unlock()
	b.wait("the device to be elsewhere", func() bool {
		h := hop("10.1.1.1")
		_, known := b.plane.dev(index)
		_, _, neighbor := b.plane.neighbor(index, "10.9.0.2")
		return h == routeplane.Hop{Action: routeplane.Elsewhere, Dev: index} && !known && !neighbor
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

// A renamed device still carries the program, so nothing is logged. When it loses the program, that is logged under its
// new name.
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
			return b.plane.asked > before+1 // by the second call, the first answer has been applied
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
		t.Errorf("logged for a renamed device:\n%s", text)
	}
	carry([]int{second}, "cv1")
	b.wait("the log", func() bool { return strings.Contains(b.log.String(), lost) })
	if text := b.log.String(); !strings.Contains(text, "interface=was0") || strings.Count(text, lost) != 1 {
		t.Errorf("logged for a device that has lost the program:\n%s", text)
	}
	// A deleted device receives nothing, so nothing is logged for it.
	b.ip("link del cv1")
	carry(nil)
	if text := b.log.String(); strings.Count(text, lost) != 1 {
		t.Errorf("logged for a deleted device:\n%s", text)
	}
}

func TestNeighbors(t *testing.T) {
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
	number, hop, ok := b.plane.neighbor(index, "10.9.0.2")
	want := b.plane.ask(netip.MustParseAddr("10.1.1.1"))
	if !ok || hop != want || number < routeplane.HopFirst || want.Action != routeplane.Forward {
		t.Fatalf("connected %+v, gateway %+v", hop, want)
	}
	// Run asks the kernel for an unknown gateway.
	b.wait("the gateway to be found", func() bool {
		h := b.plane.ask(netip.MustParseAddr("10.2.1.1"))
		return h.Action == routeplane.Forward && net.HardwareAddr(h.DstMAC[:]).String() == peer.Attrs().HardwareAddr.String()
	})
	// Changes are made in place.
	b.ip("neigh replace 10.9.0.2 dev cv0 lladdr 02:00:00:00:00:99 nud permanent")
	b.barrier()
	again, hop, _ := b.plane.neighbor(index, "10.9.0.2")
	if again != number || hop.DstMAC != [6]byte{2, 0, 0, 0, 0, 0x99} || b.plane.ask(netip.MustParseAddr("10.1.1.1")) != hop {
		t.Errorf("%+v", hop)
	}
	b.ip("neigh del 10.9.0.2 dev cv0")
	b.barrier()
	if _, hop, ok := b.plane.neighbor(index, "10.9.0.2"); ok {
		t.Errorf("a neighbor that is gone has %+v", hop)
	}
	if got := b.plane.ask(netip.MustParseAddr("10.1.1.1")); got != (routeplane.Hop{Action: routeplane.Resolve, Dev: index}) {
		t.Errorf("%+v", got)
	}
	b.plane.mu.Lock()
	if h := b.plane.hops[number]; h.Action != routeplane.Ask {
		t.Errorf("the number of a neighbor that is gone still leads to %+v", h)
	}
	b.plane.mu.Unlock()
}

// TestConfirm checks that a stale neighbor is confirmed only while the programs send to it.
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
	number, _, ok := b.plane.neighbor(index, "10.9.0.51")
	if !ok {
		t.Fatal("a stale neighbor is not known")
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
	b.wait("the neighbor in use to be confirmed", func() bool { return state("10.9.0.51")&unix.NUD_STALE == 0 })
	if got := state("10.9.0.52"); got != unix.NUD_STALE {
		t.Errorf("the neighbor that is not in use has state %#x", got)
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

// TestVLAN builds the devices in memory, since not every kernel has VLANs. The program is on the devices port and slave. The kernel
// is one that does not say what drivers take.
func TestVLAN(t *testing.T) {
	link := func(name string, index, parent, master int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Name: name, Index: index, ParentIndex: parent, MasterIndex: master, MTU: 1500 - index, NetNsID: -1,
			EncapType: "ether", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, byte(index)}, RawFlags: readyFlags}
	}
	vlan := func(a netlink.LinkAttrs, id int, protocol netlink.VlanProtocol) netlink.Link {
		return &netlink.Vlan{LinkAttrs: a, VlanId: id, VlanProtocol: protocol}
	}
	const dot1q, dot1ad = netlink.VLAN_PROTOCOL_8021Q, netlink.VLAN_PROTOCOL_8021AD
	abroad := link("abroad", 9, 1, 0)
	abroad.NetNsID = 3
	plane := newFakePlane(1, 1)
	f := &feed{plane: plane, attached: map[string]bool{"port": true, "slave": true}, devices: map[int]device{},
		abilities: map[int]netdev.Egress{}, neighbors: neigh.Table{}, confs: map[int]conf{}, numbers: newNumbers(monotonic),
		connected:  map[gatewayKey]*connected{},
		pushedDevs: map[int]routeplane.Dev{}}
	f.descs = newDescriptors(f.numbers)
	const (
		unknown  = iota // the programs do not know the device
		receives        // they take packets from it, but do not send by it
		forwards        // they do both
	)
	cases := []struct {
		about string
		link  netlink.Link
		want  int
		vlan  uint16 // of a device that packets leave by, which is always port 1
	}{
		{"carries the program", &netlink.Device{LinkAttrs: link("port", 1, 0, 0)}, forwards, 0},
		{"without the program", &netlink.Device{LinkAttrs: link("other", 2, 0, 0)}, unknown, 0},
		{"VLAN", vlan(link("port.7", 3, 1, 0), 7, dot1q), forwards, 0x1007},
		{"provider VLAN", vlan(link("port.8", 4, 1, 0), 8, dot1ad), unknown, 0},
		{"VLAN in a VLAN", vlan(link("port.7.9", 5, 3, 0), 9, dot1q), unknown, 0},
		{"VLAN of a device without the program", vlan(link("other.7", 6, 2, 0), 7, dot1q), unknown, 0},
		{"port of a bridge", &netlink.Device{LinkAttrs: link("slave", 7, 0, 2)}, receives, 0},
		{"VLAN of a port of a bridge", vlan(link("slave.7", 8, 7, 0), 7, dot1q), receives, 0},
		{"VLAN of a device in another namespace", vlan(abroad, 7, dot1q), unknown, 0},
		{"VLAN in a bridge", vlan(link("port.10", 10, 1, 2), 10, dot1q), receives, 0},
		{"VLAN in a VRF", vlan(link("port.12", 12, 1, 11), 12, dot1q), forwards, 0x100c},
	}
	for _, c := range cases {
		f.setDevice(c.link.Attrs().Index, deviceOf(c.link))
	}
	vrf := &netlink.Vrf{LinkAttrs: link("vrf", 11, 0, 0)}
	f.setDevice(vrf.Index, deviceOf(vrf))
	via := netip.MustParseAddr("10.0.0.1")
	for index := range f.devices {
		f.neighbors[gatewayKey{IfIndex: index, Addr: via}] = neigh.Entry{State: unix.NUD_REACHABLE, MAC: [6]byte{9}}
	}
	f.syncDevices()
	for _, c := range cases {
		t.Run(c.about, func(t *testing.T) {
			index := c.link.Attrs().Index
			want := routeplane.Hop{Action: routeplane.Elsewhere, Dev: index}
			if c.want == forwards {
				want = routeplane.Hop{Action: routeplane.Forward, Dev: index, Port: 1, VLAN: c.vlan, MTU: uint16(1500 - index),
					SrcMAC: [6]byte{2, 0, 0, 0, 0, byte(index)}, DstMAC: [6]byte{9}, LinearOnly: true}
			}
			got, _ := f.hopOf(&descriptor{descKey: descKey{action: routeplane.Forward, dev: index, gateway: via}})
			if got != want {
				t.Errorf("next hop %+v, want %+v", got, want)
			}
			dev, known := plane.dev(index)
			if known != (c.want != unknown) || dev.Xmit != (c.want == forwards) {
				t.Errorf("known %v, %+v", known, dev)
			}
			if c.want == forwards && (dev.Port != 1 || dev.VLAN != c.vlan) {
				t.Errorf("%+v, want port 1, VLAN %#x", dev, c.vlan)
			}
		})
	}
}
