// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The topology scion3: three ASes in a row.
//
//	as1h --- as1 --------------- as2 --------------- as3 --- as3h
//	  101.2  101.1  12.1     12.2   23.2     23.3   103.1  103.2    198.18.x.x
//
// Each AS has a border router, a control service, a daemon and a dispatcher in the
// namespace asN. AS 1 and AS 3 have a host asNh on their internal network, with a
// dispatcher, so that packets from and to end hosts cross a link. The internal
// addresses of AS 2 are on its loopback.
var scion3Topology = topology{
	about:      "ASes 1-ff00:0:1, 1-ff00:0:2 and 1-ff00:0:3 in a row, with real SCION services",
	namespaces: []string{"as1", "as1h", "as2", "as3", "as3h"},
	check:      checkScion3,
	build:      buildScion3,
}

const (
	defaultBFD     = 200 * time.Millisecond
	defaultTimeout = 5 * time.Minute
)

func checkScion3(o Options) error {
	if o.Forward || o.StaticNeighbors {
		return errors.New("forwarding and static neighbors are for veth")
	}
	if o.Routes != (Routes{}) || o.Plain {
		return errors.New("routes are for bgp")
	}
	for ns, router := range o.Routers {
		if !slices.Contains(routedASes, ns) {
			return fmt.Errorf("no AS %q: it has %s", ns, strings.Join(routedASes, ", "))
		}
		if err := router.check(); err != nil {
			return err
		}
	}
	if o.BFD < 0 || o.Timeout < 0 {
		return errors.New("a time must not be negative")
	}
	return nil
}

func buildScion3(ctx context.Context, l *Lab, o Options) error {
	if o.BFD == 0 {
		o.BFD = defaultBFD
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if err := o.Peers.Build(ctx, o.Out); err != nil {
		return err
	}
	if err := l.wireScion3(o, "as2"); err != nil {
		return err
	}
	progress(o.Out, "veth pairs as1 to as2, as2 to as3, and to the hosts as1h and as3h")
	l.ASes = l.planScion3(o)
	if err := l.configureASes(ctx, o); err != nil {
		return err
	}
	for _, as := range l.ASes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := join(l.StartRouter(as.NS, as.Router), l.startServices(as)); err != nil {
			return err
		}
		progress(o.Out, "%s: %s router, control, daemon, dispatcher", as.NS, as.Router)
	}
	return l.WaitPaths(ctx, o.Timeout, o.Out)
}

// wireScion3 makes the links between the ASes and those to the hosts. AS 2 is in the namespace middle.
func (l *Lab) wireScion3(o Options, middle string) error {
	for _, p := range [][2]end{
		{
			{ns: "as1", name: "to-as2", addrs: both(12, 1)},
			{ns: middle, name: "to-as1", addrs: both(12, 2)},
		},
		{
			{ns: middle, name: "to-as3", addrs: both(23, 2)},
			{ns: "as3", name: "to-as2", addrs: both(23, 3)},
		},
		{
			{ns: "as1", name: "to-host", addrs: both(101, 1)},
			{ns: "as1h", name: "to-router", addrs: both(101, 2)},
		},
		{
			{ns: "as3", name: "to-host", addrs: both(103, 1)},
			{ns: "as3h", name: "to-router", addrs: both(103, 2)},
		},
	} {
		if err := l.addPair(p[0], p[1], o); err != nil {
			return err
		}
	}
	return l.Do(middle, func() error { return loopbackUp(both(102, 1)...) })
}

// planScion3 returns the three ASes. The ID of an interface names both ends: 102 is
// in AS 1 and leads to AS 2.
func (l *Lab) planScion3(o Options) []AS {
	ases := make([]AS, 3)
	for i := range ases {
		n := i + 1
		ia := fmt.Sprintf("1-ff00:0:%d", n)
		ns := fmt.Sprintf("as%d", n)
		dir := filepath.Join(l.Dir, fmt.Sprintf("ASff00_0_%d", n))
		internal := net18(100+n, 1, o.IPv6).Addr()
		ases[i] = AS{
			NS: ns, IA: ia, Core: !o.SegmentSwitch || n == 2,
			Router: o.router(ns), RouterID: routerID(ia, 1),
			ConfigDir: dir, RouterConfig: filepath.Join(dir, "br.toml"), Keys: filepath.Join(dir, "keys"),
			Internal:  netip.AddrPortFrom(internal, internalPort),
			RouterAPI: netip.AddrPortFrom(loopbackAddr, routerMetrics),
			Daemon:    netip.AddrPortFrom(internal, daemonPort).String(),
			Host:      internal,
		}
		if n != 2 {
			ases[i].HostNS = ns + "h"
			ases[i].Host = net18(100+n, 2, o.IPv6).Addr()
		}
	}
	toEdge, toMiddle := "core", "core"
	if o.SegmentSwitch {
		toEdge, toMiddle = "child", "parent"
	}
	link := func(from, to int, linkTo string) ASLink {
		network := 10*min(from, to) + max(from, to)
		return ASLink{
			ID: uint16(100*from + to), RemoteID: uint16(100*to + from),
			Interface: fmt.Sprintf("to-as%d", to), RemoteIA: ases[to-1].IA, LinkTo: linkTo,
			Local:  netip.AddrPortFrom(net18(network, from, o.IPv6).Addr(), externalPort),
			Remote: netip.AddrPortFrom(net18(network, to, o.IPv6).Addr(), externalPort),
		}
	}
	// link_to is the role of the other side.
	ases[0].Links = []ASLink{link(1, 2, toMiddle)}
	ases[1].Links = []ASLink{link(2, 1, toEdge), link(2, 3, toEdge)}
	ases[2].Links = []ASLink{link(3, 2, toMiddle)}
	return ases
}

// configureASes writes the configuration files, keys and certificates of all ASes.
func (l *Lab) configureASes(ctx context.Context, o Options) error {
	if err := l.makePKI(ctx); err != nil {
		return err
	}
	progress(o.Out, "keys and certificates in %s", l.Dir)
	for _, as := range l.ASes {
		if err := l.writeASConfig(as, o); err != nil {
			return fmt.Errorf("write the configuration of %s: %w", as.NS, err)
		}
	}
	return nil
}

// writeASConfig writes the configuration files of an AS's programs into its ConfigDir.
func (l *Lab) writeASConfig(as AS, o Options) error {
	local := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(loopbackAddr, port) }
	control := netip.AddrPortFrom(as.Internal.Addr(), controlPort)
	db := func(name string) section {
		return section{"connection": filepath.Join(l.Dir, "db", as.NS+"-"+name+".db")}
	}
	interval := "1s" // the default is 5 s, after which paths take longer to appear
	services := section{as.IA + ",CS": control.String(), as.IA + ",DS": control.String()}
	return join(
		writeKeys(as.Keys),
		writeTopology(as, nil, control, scionMTU(o.MTU, o.IPv6), o.BFD),
		writeRouterConfig(as, o.BFD),
		writeConfig(filepath.Join(as.ConfigDir, "cs.toml"), controlID(as.IA), as, local(controlMetrics), map[string]section{
			"trust_db": db("control-trust"), "beacon_db": db("control-beacon"), "path_db": db("control-path"),
			"beaconing": {
				"origination_interval": interval, "propagation_interval": interval, "registration_interval": interval,
			},
		}),
		writeConfig(filepath.Join(as.ConfigDir, "sd.toml"), "sd"+fileIA(as.IA), as, local(daemonMetrics), map[string]section{
			"sd":       {"address": as.Daemon},
			"trust_db": db("daemon-trust"), "path_db": db("daemon-path"),
		}),
		writeTOML(filepath.Join(as.ConfigDir, "disp.toml"), map[string]section{
			"dispatcher": {"id": "dispatcher", "service_addresses": services},
		}),
	)
}

// services returns the names of the processes of an AS, but for the router.
func (as AS) services() []string {
	names := []string{as.NS + "-control", as.NS + "-daemon", as.NS + "-dispatcher"}
	if as.HostNS != "" {
		names = append(names, as.HostNS+"-dispatcher")
	}
	return names
}

// startServices starts the programs of an AS, but for the router.
func (l *Lab) startServices(as AS) error {
	peer := func(name string) string { return filepath.Join(l.Peers, name) }
	conf := func(name string) string { return filepath.Join(as.ConfigDir, name) }
	errs := []error{
		l.spawn(as.NS+"-control", as.NS, peer("control"), "--config", conf("cs.toml")),
		l.spawn(as.NS+"-daemon", as.NS, peer("daemon"), "--config", conf("sd.toml")),
		l.spawn(as.NS+"-dispatcher", as.NS, peer("dispatcher"), "--config", conf("disp.toml")),
	}
	if as.HostNS != "" {
		errs = append(errs, l.spawn(as.HostNS+"-dispatcher", as.HostNS,
			peer("dispatcher"), "--config", conf("disp.toml")))
	}
	return join(errs...)
}

// RestartServices ends the programs of an AS with a signal, but for the router, and starts them again. It does not wait until they
// serve.
func (l *Lab) RestartServices(as AS, sig syscall.Signal) error {
	for _, name := range as.services() {
		if err := l.Stop(name, sig); err != nil {
			return err
		}
	}
	return l.startServices(as)
}
