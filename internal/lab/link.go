// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Interface is one end of a veth pair.
type Interface struct {
	Name   string         `json:"name"`
	Index  int            `json:"ifindex"`
	MAC    string         `json:"mac"`
	MTU    int            `json:"mtu"`
	Addrs  []netip.Prefix `json:"addrs"`
	PeerNS string         `json:"peer_ns"` // namespace of the other end
	Peer   string         `json:"peer"`    // name of the other end
}

// HardwareAddr returns the interface's MAC address.
func (i Interface) HardwareAddr() net.HardwareAddr {
	mac, err := net.ParseMAC(i.MAC)
	if err != nil {
		return nil
	}
	return mac
}

// end describes one end of a veth pair that is to be made.
type end struct {
	ns    string
	name  string
	addrs []netip.Prefix
}

// addPair joins two namespaces with a veth pair. Both ends are up, with addresses,
// without checksum offload, and with GRO on. The pair is made inside the
// namespaces, so that it never appears in the host's.
func (l *Lab) addPair(a, b end, o Options) error {
	nsB, err := l.Namespace(b.ns)
	if err != nil {
		return err
	}
	peerNS, err := netns.GetFromName(nsB.NetNS)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", nsB.NetNS, err)
	}
	defer peerNS.Close()
	macA, macB := l.nextMACs()
	err = l.Do(a.ns, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU, attrs.HardwareAddr = a.name, o.MTU, macA
		attrs.NumRxQueues, attrs.NumTxQueues = o.Queues, o.Queues
		veth := netlink.NewVeth(attrs)
		veth.PeerName, veth.PeerMTU, veth.PeerHardwareAddr = b.name, uint32(o.MTU), macB
		veth.PeerNumRxQueues, veth.PeerNumTxQueues = uint32(o.Queues), uint32(o.Queues)
		veth.PeerNamespace = netlink.NsFd(peerNS)
		return netlink.LinkAdd(veth)
	})
	if err != nil {
		return fmt.Errorf("make veth pair %s/%s and %s/%s: %w", a.ns, a.name, b.ns, b.name, err)
	}
	for _, e := range []struct{ here, there end }{{a, b}, {b, a}} {
		if err := l.Do(e.here.ns, func() error { return l.setUp(e.here, e.there) }); err != nil {
			return fmt.Errorf("set up interface %s in %s: %w", e.here.name, e.here.ns, err)
		}
	}
	return nil
}

// setUp configures one end of a pair and records it. The calling thread has to be in
// its namespace.
func (l *Lab) setUp(here, there end) error {
	if err := checksumOffloadOff(here.name); err != nil {
		return err
	}
	// Without duplicate address detection the link-local address, from which a
	// router solicits its neighbors, is usable at once. Without router
	// solicitations the link is quieter.
	for _, key := range []string{"accept_dad", "router_solicitations"} {
		if err := writeSysctl("ipv6/conf/"+here.name+"/"+key, "0"); err != nil {
			return err
		}
	}
	link, err := netlink.LinkByName(here.name)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	if err := groOn(here.name); err != nil {
		return err
	}
	if err := addAddrs(link, here.addrs); err != nil {
		return err
	}
	a := link.Attrs()
	for i := range l.Namespaces {
		if l.Namespaces[i].Name == here.ns {
			l.Namespaces[i].Interfaces = append(l.Namespaces[i].Interfaces, Interface{
				Name: here.name, Index: a.Index, MAC: a.HardwareAddr.String(), MTU: a.MTU,
				Addrs: here.addrs, PeerNS: there.ns, Peer: there.name,
			})
		}
	}
	return nil
}

// addAddrs adds addresses without duplicate address detection, so that they are
// usable at once.
func addAddrs(link netlink.Link, addrs []netip.Prefix) error {
	for _, p := range addrs {
		addr := &netlink.Addr{IPNet: &net.IPNet{
			IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen()),
		}}
		if p.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("add address %s: %w", p, err)
		}
	}
	return nil
}

// loopbackUp sets up the loopback of the calling thread's namespace.
func loopbackUp(addrs ...netip.Prefix) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback interface: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set the loopback interface up: %w", err)
	}
	return addAddrs(lo, addrs)
}

// nextMACs returns locally administered MAC addresses for the next pair. They
// depend on the name of the lab and on the number of interfaces only, and differ
// between labs.
func (l *Lab) nextMACs() (a, b net.HardwareAddr) {
	ends := 0
	for _, ns := range l.Namespaces {
		ends += len(ns.Interfaces)
	}
	h := fnv.New32a()
	h.Write([]byte(l.Name))
	sum := h.Sum32()
	mac := func(n int) net.HardwareAddr {
		return net.HardwareAddr{0x02, byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum), byte(n)}
	}
	return mac(ends + 1), mac(ends + 2)
}

// writeSysctl sets a sysctl below /proc/sys/net in the calling thread's namespace.
func writeSysctl(key, value string) error {
	if err := os.WriteFile("/proc/sys/net/"+key, []byte(value), 0); err != nil {
		return fmt.Errorf("set net/%s: %w", key, err)
	}
	return nil
}

// setNeighbor adds a permanent neighbor entry in the calling thread's
// namespace.
func setNeighbor(ifname string, addr netip.Addr, mac net.HardwareAddr) error {
	link, err := netlink.LinkByName(ifname)
	if err != nil {
		return err
	}
	err = netlink.NeighSet(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, IP: addr.AsSlice(), HardwareAddr: mac, State: netlink.NUD_PERMANENT,
	})
	if err != nil {
		return fmt.Errorf("set neighbor %s on %s: %w", addr, ifname, err)
	}
	return nil
}

// addDefaultRoute adds a default route via a gateway in the calling thread's
// namespace.
func addDefaultRoute(gw netip.Addr) error {
	all := &net.IPNet{IP: make(net.IP, gw.BitLen()/8), Mask: net.CIDRMask(0, gw.BitLen())}
	if err := netlink.RouteAdd(&netlink.Route{Dst: all, Gw: gw.AsSlice()}); err != nil {
		return fmt.Errorf("add a default route via %s: %w", gw, err)
	}
	return nil
}

// Connect joins two namespaces of a lab that is up with one more veth pair. An end that is set down keeps its IPv6 addresses.
func (l *Lab) Connect(a, b Link) error {
	mtu := 0
	for _, ns := range l.Namespaces {
		for _, i := range ns.Interfaces {
			mtu = max(mtu, i.MTU)
		}
	}
	x, y := end{ns: a.NS, name: a.Name, addrs: a.Addrs}, end{ns: b.NS, name: b.Name, addrs: b.Addrs}
	if err := l.addPair(x, y, Options{MTU: min(mtu, 1500)}); err != nil {
		return err
	}
	for _, e := range []end{x, y} {
		err := l.Do(e.ns, func() error {
			return join(vlanOffloadOff(e.name), writeSysctl("ipv4/conf/"+e.name+"/rp_filter", "0"),
				writeSysctl("ipv6/conf/"+e.name+"/keep_addr_on_down", "1"))
		})
		if err != nil {
			return fmt.Errorf("set up interface %s in %s: %w", e.name, e.ns, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.save()
}

// Link is one end of a veth pair that Connect makes.
type Link struct {
	NS, Name string
	Addrs    []netip.Prefix
}
