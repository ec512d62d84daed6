// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The topology bgp: a router under test that receives a full table from a neighbor.
//
//	left             rut                    peer                    right
//	to-rut ------ to-left  to-peer ------ to-rut  to-right ------ to-peer
//	   1.2        1.1         12.1        12.2        23.1        23.2      198.18.x.x
//	                  to-rpki
//	                     13.1 ------ 13.2 to-rut, in rpki
//
// IPv6 has 2001:db8:1:: and so on. BIRD in peer announces real prefixes to BIRD in rut, by eBGP in both families. Stayrtr in
// rpki serves route origin authorizations to rut. peer forwards all packets to right, where every address is local. So every
// address answers that rut has a route to.
var bgpTopology = topology{
	about:      "a router, rut, with a full table by BGP, between the endpoints left and right",
	namespaces: []string{"rut", "peer", "rpki", "left", "right"},
	check:      checkBGP,
	build:      buildBGP,
}

// Numbers of the networks of the topology bgp, for net18.
const (
	netLeft  = 1
	netPeer  = 12
	netRPKI  = 13
	netRight = 23
)

// bgpTimeout is long enough for a full table on a busy machine.
const bgpTimeout = 5 * time.Minute

// BGP describes what the topology bgp has built.
type BGP struct {
	Router        Router   `json:"router"`         // what forwards in rut: Culvert or Linux
	Plain         bool     `json:"plain"`          // routes by ip(8), without BGP
	CulvertConfig string   `json:"culvert_config"` // a configuration file for culvert in rut, whether it runs or not
	IPv4          BGPTable `json:"ipv4"`
	IPv6          BGPTable `json:"ipv6"`
}

// BGPTable describes the table of one family.
type BGPTable struct {
	Announced   int        `json:"announced"`  // prefixes that peer announces
	Invalid     int        `json:"wrong"`      // announced prefixes with an invalid origin
	ROAs        int        `json:"roas"`       // route origin authorizations that rpki serves
	Filtered    int        `json:"filtered"`   // prefixes that rut's BIRD has rejected
	Routes      int        `json:"routes"`     // routes in rut's kernel
	Target      netip.Addr `json:"target"`     // an address in right, reached by one of the routes
	InvalidAddr netip.Addr `json:"wrong_addr"` // an address in one of the prefixes with an invalid origin
}

func checkBGP(o Options) error {
	if o.Forward || o.StaticNeighbors || o.SegmentSwitch || o.BFD != 0 || o.IPv6 {
		return errors.New("it always forwards, in both families; static neighbors, the segment switch, BFD and SCION over IPv6 are for other topologies")
	}
	for ns, router := range o.Routers {
		if ns != "rut" || router != Culvert && router != Linux {
			return fmt.Errorf("no router %q for %s: rut runs %s or %s", router, ns, Culvert, Linux)
		}
	}
	if o.Timeout < 0 {
		return errors.New("a time must not be negative")
	}
	return o.Routes.check()
}

func buildBGP(ctx context.Context, l *Lab, o Options) error {
	if o.Timeout == 0 {
		o.Timeout = bgpTimeout
	}
	programs := []string{"ping", "ip"}
	if !o.Plain {
		programs = append(programs, "bird", "birdcl", "stayrtr")
	}
	if err := l.needPrograms(programs...); err != nil {
		return err
	}
	plan, err := planBGP(ctx, o)
	if err != nil {
		return err
	}
	l.BGP = &BGP{Router: o.rut(), Plain: o.Plain, IPv4: plan.v4.summary(), IPv6: plan.v6.summary()}
	if err := l.wireBGP(o); err != nil {
		return err
	}
	progress(o.Out, "veth pairs rut to left, peer and rpki, and peer to right")
	w := waiter{lab: l, out: o.Out, timeout: o.Timeout}
	if err := l.writeCulvertConfig(); err != nil {
		return err
	}
	if o.rut() == Culvert {
		if err := l.startCulvert(ctx, w, "rut", l.BGP.CulvertConfig, "to-left", "to-peer"); err != nil {
			return err
		}
	}
	if o.Plain {
		err = l.startPlain(ctx, plan, w)
	} else {
		err = l.startBGP(ctx, plan, w)
	}
	if err != nil {
		return err
	}
	if o.rut() == Culvert {
		if err := l.waitMirror(ctx, w); err != nil {
			return err
		}
	}
	return l.waitPings(ctx, w)
}

// rut returns what forwards in the namespace rut of the topology bgp.
func (o Options) rut() Router {
	if r, ok := o.Routers["rut"]; ok {
		return r
	}
	return Culvert
}

// needPrograms returns an error if a program of Debian is not installed.
func (l *Lab) needPrograms(names ...string) error {
	debian := map[string]string{"ping": "iputils-ping", "ip": "iproute2", "bird": "bird2", "birdcl": "bird2", "stayrtr": "stayrtr"}
	for _, name := range names {
		if _, err := l.lookPath([]string{name}); err != nil {
			return fmt.Errorf("look for %s: %w: install the Debian package %s, or run 'make deps'", name, err, debian[name])
		}
	}
	return nil
}

// wireBGP makes the links with their addresses, and the routes that do not come by BGP.
func (l *Lab) wireBGP(o Options) error {
	for _, p := range [][2]end{
		{{ns: "rut", name: "to-left", addrs: both(netLeft, 1)}, {ns: "left", name: "to-rut", addrs: both(netLeft, 2)}},
		{{ns: "rut", name: "to-peer", addrs: both(netPeer, 1)}, {ns: "peer", name: "to-rut", addrs: both(netPeer, 2)}},
		{{ns: "rut", name: "to-rpki", addrs: both(netRPKI, 1)}, {ns: "rpki", name: "to-rut", addrs: both(netRPKI, 2)}},
		{{ns: "peer", name: "to-right", addrs: both(netRight, 1)}, {ns: "right", name: "to-peer", addrs: both(netRight, 2)}},
	} {
		if err := l.addPair(p[0], p[1], o); err != nil {
			return err
		}
		if p[0].ns != "rut" {
			continue
		}
		// XDP in rut does not see a VLAN tag that the sender leaves to the device.
		if err := l.Do(p[1].ns, func() error { return vlanOffloadOff(p[1].name) }); err != nil {
			return err
		}
	}
	for _, ns := range l.Namespaces {
		if err := l.Do(ns.Name, func() error { return routerSettings(ns) }); err != nil {
			return fmt.Errorf("set up %s: %w", ns.Name, err)
		}
	}
	return join(
		l.Do("left", func() error { return defaultRoutes(netLeft, 1) }),
		l.Do("peer", func() error { return defaultRoutes(netRight, 2) }),
		l.Do("right", anyAddress),
	)
}

// routerSettings sets sysctls of the calling thread's namespace: a router forwards, and routers and hosts accept packets from
// any source.
func routerSettings(ns Namespace) error {
	var errs []error
	if ns.Name == "rut" || ns.Name == "peer" {
		errs = append(errs, writeSysctl("ipv4/ip_forward", "1"), writeSysctl("ipv6/conf/all/forwarding", "1"))
	}
	// A new namespace may have the host's values for the defaults and for interfaces.
	names := []string{"all", "default"}
	for _, i := range ns.Interfaces {
		names = append(names, i.Name)
	}
	for _, name := range names {
		errs = append(errs, writeSysctl("ipv4/conf/"+name+"/rp_filter", "0"))
	}
	// Without a limit for ICMP every traceroute sees all hops.
	errs = append(errs, writeSysctl("ipv4/icmp_ratemask", "0"), writeSysctl("ipv6/icmp/ratelimit", "0"))
	return join(errs...)
}

// defaultRoutes adds default routes via host n of network k in the calling thread's namespace.
func defaultRoutes(k, n int) error {
	return join(addDefaultRoute(net18(k, n, false).Addr()), addDefaultRoute(net18(k, n, true).Addr()))
}

// anyAddress makes every address local in the calling thread's namespace, except those of the lab, which are behind peer. The
// routes are in the main table, since those in the local table have precedence over the routes to the lab. The kernel sends no
// ICMP errors from an address that is local only by such a route, so the loopback has the well-known addresses too.
func anyAddress() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback interface: %w", err)
	}
	if err := addAddrs(lo, knownAddrs()); err != nil {
		return err
	}
	for _, family := range []struct {
		all, lab string
		gw       netip.Addr
		scope    netlink.Scope
	}{
		{"0.0.0.0/0", "198.18.0.0/15", net18(netRight, 1, false).Addr(), netlink.SCOPE_HOST},
		{"::/0", "2001:db8::/32", net18(netRight, 1, true).Addr(), netlink.SCOPE_UNIVERSE},
	} {
		all, err := netlink.ParseIPNet(family.all)
		if err != nil {
			return err
		}
		lab, err := netlink.ParseIPNet(family.lab)
		if err != nil {
			return err
		}
		for _, r := range []*netlink.Route{
			{Dst: lab, Gw: family.gw.AsSlice()},
			{Dst: all, LinkIndex: lo.Attrs().Index, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_MAIN, Scope: family.scope},
		} {
			if err := netlink.RouteAdd(r); err != nil {
				return fmt.Errorf("add route %s: %w", r.Dst, err)
			}
		}
	}
	return nil
}

// ParseRoutes parses the number of prefixes that peer announces: "full", a number of IPv4 prefixes, or the numbers of IPv4
// and IPv6 prefixes, separated by a comma. With one number the proportion of IPv6 is that of the full table.
func ParseRoutes(s string) (Routes, error) {
	if s == "full" {
		return Routes{}, nil
	}
	r := Routes{Limited: true}
	n4, n6, found := strings.Cut(s, ",")
	var err4, err6 error
	r.V4, err4 = parseCount(n4)
	// The full table has 901,899 IPv4 prefixes and 160,147 IPv6 prefixes.
	r.V6 = int(int64(r.V4) * 160_147 / 901_899)
	if found {
		r.V6, err6 = parseCount(n6)
	}
	if err4 != nil || err6 != nil {
		return r, fmt.Errorf("%w: %q is no number of routes: use full, a number, or two with a comma for IPv4 and IPv6", ErrOptions, s)
	}
	return r, nil
}
