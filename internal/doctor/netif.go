// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"

	"github.com/vishvananda/netlink"

	"culvert/internal/host/netdev"
)

// netif holds the facts of one interface.
type netif struct {
	name string
	// kind is the kind of a software device in rtnetlink ("veth", "vlan", ...), or "device" for hardware.
	kind string
	// driver is the name of the driver, or kind if the kernel names none.
	driver string
	up     bool
	// carrier is false when the cable is unplugged, or when the peer of a veth is down.
	carrier bool
	// noEthernet: frames have no Ethernet header, so that culvert refuses the interface.
	noEthernet bool
	// bridge is the bridge of which it is a port, "" for none.
	bridge string
	// parent is the device below a VLAN or macvlan device, "" for other kinds.
	parent string
	mtu    int
	cpus   int
	queues netdev.Channels
	// served is how hashes are spread over the receive queues, and which CPUs serve these (netdev.Queues.Served).
	served string
	// offloads is nil if the driver does not report them.
	offloads offloads
	xdp      xdpSupport
	program  *program
	// vlans are the VLAN devices on top of it.
	vlans []string
	// peer is the other end of a veth, nil for other kinds.
	peer *peer
	// fromMachines: see there. leaveSums are all devices by which packets with unfinished checksums may come in.
	fromMachines bool
	leaveSums    []string
	// forwards tells whether culvert redirects packets that come in here, or will once it is started.
	forwards bool
	// stages are the stages that are on, in any data plane: each may send frames by the interface.
	stages Stages
	// above is the bond for which a member is examined, nil for other interfaces.
	above *netif
	// rpFilter is the effective value of rp_filter.
	rpFilter string
}

// peer holds the facts of the other end of a veth.
type peer struct {
	index int
	// seen is false if the peer's network namespace cannot be found or entered. The fields below are not set then.
	seen bool
	name string
	// where names the peer's network namespace. enter is the prefix of a command that runs there. Both are "" if the peer
	// is in this network namespace.
	where    string
	enter    string
	up       bool
	mtu      int
	offloads offloads
	program  bool
}

// command returns a command that runs in the peer's network namespace. The format has one %s for the peer's name, for which
// PEER stands if the name is not known.
func (p *peer) command(format string) string {
	if !p.seen {
		return "in the peer's namespace: " + fmt.Sprintf(format, "PEER")
	}
	return p.enter + fmt.Sprintf(format, p.name)
}

func (p *peer) String() string {
	switch {
	case !p.seen:
		return fmt.Sprintf("peer (ifindex %d, in a network namespace that cannot be seen from here)", p.index)
	case p.enter == "":
		return "peer " + p.name
	default:
		return fmt.Sprintf("peer %s in %s", p.name, p.where)
	}
}

// chosen has the interfaces to examine, and findings about interfaces that were asked for and are not examined.
type chosen struct {
	links    []netlink.Link
	findings []Finding
}

func chooseInterfaces(o Options) (chosen, error) {
	var c chosen
	links, err := netlink.LinkList()
	if err != nil {
		return c, fmt.Errorf("list the interfaces: %w", err)
	}
	byName := map[string]netlink.Link{}
	var loopback netlink.Link
	for _, l := range links {
		byName[l.Attrs().Name] = l
		if isLoopback(l) {
			loopback = l
		}
	}
	taken := map[string]bool{}
	// named tells whether culvert is to be attached to the interface itself.
	take := func(l netlink.Link, named bool) {
		if taken[l.Attrs().Name] {
			return
		}
		taken[l.Attrs().Name] = true
		generic := o.Stages.Generic || slices.Contains(o.Attached, l.Attrs().Name)
		switch {
		case !isLoopback(l), named && generic:
			c.links = append(c.links, l)
			return
		case named:
			c.findings = append(c.findings, Finding{
				Status: Fail, Check: "native", Interface: l.Attrs().Name,
				Finding: "the loopback does not run XDP in a driver: only generic mode is left", Command: useGeneric,
			})
			return
		}
		c.findings = append(c.findings, Finding{
			Check: "interface", Interface: l.Attrs().Name,
			Finding: "loopback: culvert is not attached to it, its packets take the slow path",
		})
	}
	for _, name := range o.Interfaces {
		if l, ok := byName[name]; ok {
			take(l, true)
			continue
		}
		if now, ok := byName[o.Renamed[name]]; ok {
			c.findings = append(c.findings, Finding{
				Status: Warn, Check: "interface", Interface: name, Command: fmt.Sprintf("ip link set dev %s name %s", now.Attrs().Name, name),
				Finding: fmt.Sprintf("it was renamed to %s, and culvert is attached to it under that name: a start looks for %s", now.Attrs().Name, name),
			})
			take(now, true)
			continue
		}
		if slices.ContainsFunc(o.Missing, func(m Missing) bool { return m.Interface == name && !m.Exists }) {
			continue // checkMissing has a finding about it
		}
		f := Finding{
			Status: Fail, Check: "interface", Interface: name,
			Finding: "does not exist in this network namespace", Command: "ip -brief link",
		}
		if o.Waits {
			f.Status = Warn
			f.Finding += ": a start goes on without it, and attaches to it when it does exist"
		}
		c.findings = append(c.findings, f)
	}
	owner, err := addressOwners(links)
	if err != nil {
		return c, err
	}
	for _, addr := range o.Local {
		// The loopback has all addresses of 127.0.0.0/8, although the kernel lists only one of them.
		if addr.IsLoopback() && loopback != nil {
			take(loopback, false)
			continue
		}
		if l, ok := owner[addr.Unmap()]; ok {
			take(l, false)
			continue
		}
		c.findings = append(c.findings, Finding{
			Status: Fail, Check: "address",
			Finding: fmt.Sprintf("no interface of this network namespace has %s", addr),
			Command: fmt.Sprintf("ip address add %s/PREFIX dev IFACE", addr),
		})
	}
	if len(o.Interfaces) > 0 || len(o.Local) > 0 {
		return c, nil
	}
	for _, l := range links {
		if a := l.Attrs(); isUp(l) && a.MasterIndex == 0 && !isLoopback(l) || slices.Contains(o.Attached, a.Name) {
			take(l, true)
		}
	}
	if c.links == nil {
		c.findings = append(c.findings, Finding{
			Status: Warn, Check: "interface", Finding: "none is up but the loopback", Command: "ip -brief link",
		})
	}
	return c, nil
}

func addressOwners(links []netlink.Link) (map[netip.Addr]netlink.Link, error) {
	owner := map[netip.Addr]netlink.Link{}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list the addresses: %w", err)
	}
	for _, a := range addrs {
		addr, ok := netip.AddrFromSlice(a.IP)
		if !ok {
			continue
		}
		for _, l := range links {
			if l.Attrs().Index == a.LinkIndex {
				owner[addr.Unmap()] = l
			}
		}
	}
	return owner, nil
}

// readInterface collects the facts of one interface of the calling thread's network namespace.
func readInterface(l netlink.Link) (netif, error) {
	a := l.Attrs()
	n := netif{
		name:     a.Name,
		kind:     l.Type(),
		driver:   netdev.ReadDriver(a.Name),
		up:       isUp(l),
		carrier:  hasCarrier(l),
		mtu:      a.MTU,
		cpus:     runtime.NumCPU(),
		queues:   netdev.ReadChannels(a.Name),
		xdp:      readXDPSupport(a.Index),
		program:  readProgram(a),
		rpFilter: rpFilter(a.Name),

		noEthernet: !netdev.Ethernet(l),
		bridge:     netdev.BridgeAbove(l),

		fromMachines: fromMachines(l),
	}
	if q := netdev.ReadQueues(a.Name); q != nil {
		n.served = q.Served()
	}
	if n.driver == "" {
		n.driver = n.kind
	}
	// A device without ethtool support has no offloads that XDP could not work with.
	n.offloads, _ = readOffloads(a.Name)

	links, err := netlink.LinkList()
	if err != nil {
		return n, fmt.Errorf("list the interfaces: %w", err)
	}
	for _, other := range links {
		b := other.Attrs()
		if other.Type() == "vlan" && b.ParentIndex == a.Index {
			n.vlans = append(n.vlans, b.Name)
		}
		if b.Index != a.Index && leavesSums(other) {
			n.leaveSums = append(n.leaveSums, b.Name)
		}
		if b.Index == a.ParentIndex && n.kind != "veth" {
			n.parent = b.Name
		}
	}
	if n.kind == "veth" {
		n.peer = readPeer(a)
	}
	return n, nil
}

// readPeer collects the facts of the other end of a veth, which may be in another network namespace.
func readPeer(a *netlink.LinkAttrs) *peer {
	p := &peer{index: a.ParentIndex}
	read := func() error {
		l, err := netlink.LinkByIndex(p.index)
		if err != nil {
			return fmt.Errorf("look at interface %d: %w", p.index, err)
		}
		b := l.Attrs()
		p.name, p.mtu, p.up = b.Name, b.MTU, isUp(l)
		p.program = b.Xdp != nil && b.Xdp.Attached
		p.offloads, err = readOffloads(b.Name)
		return err
	}
	// The kernel reports -1 for a peer in this network namespace.
	if a.NetNsID == -1 {
		p.seen = read() == nil
		return p
	}
	ns, ok := findNamespace(a.NetNsID)
	if !ok {
		return p
	}
	p.where, p.enter = ns.name, ns.enter
	p.seen = ns.in(read) == nil
	return p
}
