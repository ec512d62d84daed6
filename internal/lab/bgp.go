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

// The topology bgp: a router under test that gets a full table from a neighbour.
//
//	left             rut                    peer                    right
//	to-rut ------ to-left  to-peer ------ to-rut  to-right ------ to-peer
//	   1.2        1.1         12.1        12.2        23.1        23.2      198.18.x.x
//	                  to-rpki
//	                     13.1 ------ 13.2 to-rut, in rpki
//
// and the same with 2001:db8:1:: and so on. BIRD in peer announces real prefixes to BIRD in rut, by eBGP over
// both families. Stayrtr in rpki tells rut which origins are right. All that peer gets goes on to right, which
// takes every address for its own: what rut has a route for answers.
var bgpTopology = topology{
	about:      "a router, rut, with a full table by BGP, between the endpoints left and right",
	namespaces: []string{"rut", "peer", "rpki", "left", "right"},
	check:      checkBGP,
	build:      buildBGP,
}

// What the interfaces of the topology bgp have for the third number of their addresses.
const (
	netLeft  = 1
	netPeer  = 12
	netRPKI  = 13
	netRight = 23
)

// bgpTimeout is for a full table on a machine that has more to do.
const bgpTimeout = 5 * time.Minute

// BGP describes what the topology bgp has built.
type BGP struct {
	Router        Router   `json:"router"`         // what forwards in rut: Culvert or Linux
	Plain         bool     `json:"plain"`          // routes by ip(8), without BGP
	CulvertConfig string   `json:"culvert_config"` // what culvert runs with, or would
	IPv4          BGPTable `json:"ipv4"`
	IPv6          BGPTable `json:"ipv6"`
}

// BGPTable tells of one family.
type BGPTable struct {
	Announced int        `json:"announced"`  // prefixes that peer announces
	Wrong     int        `json:"wrong"`      // of these, with an origin that RPKI says is wrong
	ROAs      int        `json:"roas"`       // route origin authorizations that rpki serves
	Filtered  int        `json:"filtered"`   // prefixes that rut's BIRD has rejected
	Routes    int        `json:"routes"`     // in rut's kernel
	Target    netip.Addr `json:"target"`     // an address in right, by one of the routes
	WrongAddr netip.Addr `json:"wrong_addr"` // an address in one of the wrong prefixes
}

func checkBGP(o Options) error {
	if o.Forward || o.StaticNeighbours || o.SegmentSwitch || o.BFD != 0 || o.IPv6 {
		return errors.New("it always forwards, in both families; static neighbours, the segment switch, BFD and SCION over IPv6 are for the other topologies")
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

// rut returns what forwards in the router under test of the topology bgp.
func (o Options) rut() Router {
	if r, ok := o.Routers["rut"]; ok {
		return r
	}
	return Culvert
}

// needPrograms looks for programs that Debian has, before anything waits for them.
func (l *Lab) needPrograms(names ...string) error {
	debian := map[string]string{"ping": "iputils-ping", "ip": "iproute2", "bird": "bird2", "birdcl": "bird2", "stayrtr": "stayrtr"}
	for _, name := range names {
		if _, err := l.lookPath([]string{name}); err != nil {
			return fmt.Errorf("look for %s: %w: install the Debian package %s, or run 'make deps'", name, err, debian[name])
		}
	}
	return nil
}

// wireBGP makes the links, with addresses, and the routes that are there without BGP.
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
		// A tag that a sender leaves to the device is not in the packet that XDP sees at the other end.
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

// routerSettings sets the calling thread's namespace up as a router, or as a host that is as patient with
// packets from anywhere.
func routerSettings(ns Namespace) error {
	var errs []error
	if ns.Name == "rut" || ns.Name == "peer" {
		errs = append(errs, writeSysctl("ipv4/ip_forward", "1"), writeSysctl("ipv6/conf/all/forwarding", "1"))
	}
	// What the host has for its own interfaces may be the default here.
	names := []string{"all", "default"}
	for _, i := range ns.Interfaces {
		names = append(names, i.Name)
	}
	for _, name := range names {
		errs = append(errs, writeSysctl("ipv4/conf/"+name+"/rp_filter", "0"))
	}
	// One traceroute after the other sees every hop.
	errs = append(errs, writeSysctl("ipv4/icmp_ratemask", "0"), writeSysctl("ipv6/icmp/ratelimit", "0"))
	return join(errs...)
}

// defaultRoutes adds default routes via host n of network k in the calling thread's namespace.
func defaultRoutes(k, n int) error {
	return join(addDefaultRoute(net18(k, n, false).Addr()), addDefaultRoute(net18(k, n, true).Addr()))
}

// anyAddress makes the calling thread's namespace take every address for its own, other than those of the
// lab, which are behind peer. The routes are in the main table: in the local one they would come before
// those of the lab. The kernel sends no errors from addresses that it has by such a route alone, so the widely
// known ones are on the loopback too.
func anyAddress() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback interface: %w", err)
	}
	var known []netip.Prefix
	for _, f := range []bgpFamily{handful4, handful6} {
		for _, a := range append(f.known, f.target) {
			known = append(known, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	if err := addAddrs(lo, known); err != nil {
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

// ParseRoutes reads how many prefixes peer announces: "full", a number of IPv4 prefixes, to which as many of
// IPv6 belong as in the full table, or both numbers with a comma.
func ParseRoutes(s string) (Routes, error) {
	if s == "full" {
		return Routes{}, nil
	}
	r := Routes{Limited: true}
	n4, n6, two := strings.Cut(s, ",")
	var err4, err6 error
	r.V4, err4 = parseCount(n4)
	// The full table has so many of either.
	r.V6 = int(int64(r.V4) * 160_147 / 901_899)
	if two {
		r.V6, err6 = parseCount(n6)
	}
	if err4 != nil || err6 != nil {
		return r, fmt.Errorf("%w: %q is no number of routes: give full, a number, or two with a comma, for IPv4 and IPv6", ErrOptions, s)
	}
	return r, nil
}
