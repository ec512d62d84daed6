// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// The topology veth: one router under test between two neighbors.
//
//	a                      rut                       b
//	to-rut ----------- to-a   to-b ------------ to-rut
//	198.18.1.2   198.18.1.1   198.18.2.1    198.18.2.2   towards another AS
//	                         198.18.20.1   198.18.20.2   inside the AS
//
// IPv6 has 2001:db8:1::, 2001:db8:2:: and 2001:db8:20::. As a SCION router rut has
// interface 1 towards a and interface 2 towards b. Its internal network is on the
// side of b: an end host and the control service have address .2, and a sibling
// router, which has interface 3, has address .3.
var vethTopology = topology{
	about:      "one router under test, rut, between the endpoints a and b",
	namespaces: []string{"rut", "a", "b"},
	check:      checkVeth,
	build:      buildVeth,
}

func checkVeth(o Options) error {
	if len(o.Routers) > 0 || o.SegmentSwitch || o.BFD != 0 {
		return errors.New("it starts no routers: the choice of routers, the segment switch and BFD are for scion3")
	}
	if o.Routes != (Routes{}) || o.Plain {
		return errors.New("routes are for bgp")
	}
	return nil
}

// net18 returns the address of host n in network k: 198.18.k.n/24 or
// 2001:db8:k::n/64.
func net18(k, n int, ipv6 bool) netip.Prefix {
	if ipv6 {
		return netip.MustParsePrefix(fmt.Sprintf("2001:db8:%d::%d/64", k, n))
	}
	return netip.MustParsePrefix(fmt.Sprintf("198.18.%d.%d/24", k, n))
}

// both returns the addresses of host n in network k in both families.
func both(k, n int) []netip.Prefix {
	return []netip.Prefix{net18(k, n, false), net18(k, n, true)}
}

func buildVeth(ctx context.Context, l *Lab, o Options) error {
	pairs := []struct{ rut, far end }{
		{
			end{ns: "rut", name: "to-a", addrs: both(1, 1)},
			end{ns: "a", name: "to-rut", addrs: both(1, 2)},
		},
		{
			end{ns: "rut", name: "to-b", addrs: append(both(2, 1), both(20, 1)...)},
			end{ns: "b", name: "to-rut", addrs: append(append(both(2, 2), both(20, 2)...), both(20, 3)...)},
		},
	}
	for _, p := range pairs {
		if err := l.addPair(p.rut, p.far, o); err != nil {
			return err
		}
		progress(o.Out, "veth pair rut/%s to %s/%s", p.rut.name, p.far.ns, p.far.name)
		err := l.Do(p.far.ns, func() error {
			return join(addDefaultRoute(p.rut.addrs[0].Addr()), addDefaultRoute(p.rut.addrs[1].Addr()))
		})
		if err != nil {
			return err
		}
	}
	if o.Forward {
		err := l.Do("rut", func() error {
			return join(writeSysctl("ipv4/ip_forward", "1"), writeSysctl("ipv6/conf/all/forwarding", "1"))
		})
		if err != nil {
			return err
		}
	}
	if o.StaticNeighbors {
		if err := l.setNeighbors(); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := l.writeVethAS(o); err != nil {
		return fmt.Errorf("write the router's configuration: %w", err)
	}
	progress(o.Out, "router configuration %s", l.ASes[0].RouterConfig)
	return nil
}

// setNeighbors adds permanent neighbor entries to each interface, for the addresses
// at the other end of its pair.
func (l *Lab) setNeighbors() error {
	for _, ns := range l.Namespaces {
		for _, i := range ns.Interfaces {
			far, err := l.Namespace(i.PeerNS)
			if err != nil {
				return err
			}
			peer, err := far.Interface(i.Peer)
			if err != nil {
				return err
			}
			err = l.Do(ns.Name, func() error {
				var errs []error
				for _, p := range peer.Addrs {
					errs = append(errs, setNeighbor(i.Name, p.Addr(), peer.HardwareAddr()))
				}
				return join(errs...)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// writeVethAS writes the configuration files of a SCION router for rut. BFD is off,
// since the endpoints have no routers that answer it.
func (l *Lab) writeVethAS(o Options) error {
	const ia = "1-ff00:0:1"
	at := func(k, n int, port uint16) netip.AddrPort {
		return netip.AddrPortFrom(net18(k, n, o.IPv6).Addr(), port)
	}
	dir := filepath.Join(l.Dir, "AS"+strings.TrimPrefix(fileIA(ia), "1-"))
	as := AS{
		NS: "rut", HostNS: "b", IA: ia, Core: true, RouterID: routerID(ia, 1),
		ConfigDir: dir, RouterConfig: filepath.Join(dir, "br.toml"), Keys: filepath.Join(dir, "keys"),
		Internal:  at(20, 1, internalPort),
		RouterAPI: netip.AddrPortFrom(loopbackAddr, routerMetrics),
		Host:      net18(20, 2, o.IPv6).Addr(),
		Links: []ASLink{
			{
				ID: 1, Interface: "to-a", LinkTo: "core", RemoteIA: "1-ff00:0:2", RemoteID: 1,
				Local: at(1, 1, externalPort), Remote: at(1, 2, externalPort),
			},
			{
				ID: 2, Interface: "to-b", LinkTo: "core", RemoteIA: "1-ff00:0:3", RemoteID: 1,
				Local: at(2, 1, externalPort), Remote: at(2, 2, externalPort),
			},
		},
	}
	other := sibling{
		id: routerID(ia, 2), internal: at(20, 3, internalPort),
		links: []ASLink{{
			ID: 3, LinkTo: "core", RemoteIA: "1-ff00:0:4", RemoteID: 1,
			Local: at(3, 1, externalPort), Remote: at(3, 2, externalPort),
		}},
	}
	l.ASes = []AS{as}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return join(
		writeKeys(as.Keys),
		writeTopology(as, []sibling{other}, at(20, 2, controlPort), scionMTU(o.MTU, o.IPv6), 0),
		writeRouterConfig(as, 0),
	)
}

var loopbackAddr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
