// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// testGracefulRestart ends culvert on a balancer and starts it again under load, with graceful restart on. router keeps its
// next hops all the time. It loses one if VIPs are drained right before the end.
func (b *balanced) testGracefulRestart() {
	const head, graceful = "[lb.bgp]\n", "[lb.bgp]\ngraceful_restart = \"60s\"\n"
	for _, ns := range balancers {
		b.end(ns, syscall.SIGTERM)
	}
	b.startWith(head, graceful)

	w := b.load()
	lost := b.watchNextHops()
	b.end("lb1", syscall.SIGTERM)
	b.awaitSessions("lb1", "waited for", func(s string) bool { return strings.Contains(s, "Neighbor graceful restart active\n") })
	w.moves()
	check(b.T, b.lab.StartBalancer("lb1"))
	b.awaitSessions("lb1", "established", isEstablished)
	w.moves()
	if got := lost(); got != "" {
		b.Errorf("router has lost next hops:\n%s", got)
	}

	b.lbOn("lb1", "drain", "VIP")
	b.end("lb1", syscall.SIGTERM)
	b.awaitNextHops(1, 1)
	w.moves()
	w.end()
	b.lbOn("lb1", "undrain", "VIP")
	b.end("lb2", syscall.SIGTERM)
	b.startWith(graceful, head)
}

func isEstablished(session string) bool {
	return strings.Contains(session, "BGP state:          Established\n")
}

// startWith replaces a part of the configuration, with or without graceful restart, and starts culvert on all balancers.
func (b *balanced) startWith(from, to string) {
	b.Helper()
	for _, ns := range balancers {
		config := b.lab.LB.Configs[ns]
		before, err := os.ReadFile(config)
		check(b.T, err)
		check(b.T, os.WriteFile(config, []byte(strings.Replace(string(before), from, to, 1)), 0o600))
		check(b.T, b.lab.StartBalancer(ns))
	}
	graceful := strings.Contains(to, "graceful_restart")
	for _, ns := range balancers {
		b.awaitSessions(ns, "established with the new configuration", func(s string) bool {
			return isEstablished(s) && strings.Contains(s, "Restart time: 60\n") == graceful
		})
	}
	b.normal()
}

// awaitSessions waits until is returns true for the output of birdc about both sessions with a balancer.
func (b *balanced) awaitSessions(ns, what string, is func(session string) bool) {
	b.Helper()
	for _, family := range []string{"4", "6"} {
		b.wait(fmt.Sprintf("BIRD's session with %s over IPv%s to be %s", ns, family, what), func() bool {
			out, err := b.lab.Run(b.Context(), "router", "birdc", "-s", filepath.Join(b.lab.Dir, "router.ctl"), "show", "protocols", "all", ns+"_"+family)
			check(b.T, err)
			return is(string(out))
		})
	}
}

// watchNextHops begins to watch router's routes. lost ends that and describes each time when router had fewer next hops to a VIP
// than there are balancers.
func (b *balanced) watchNextHops() (lost func() string) {
	b.Helper()
	changes, quit := make(chan netlink.RouteUpdate, 1<<10), make(chan struct{})
	check(b.T, b.lab.Do("router", func() error { return netlink.RouteSubscribe(changes, quit) }))
	mark := &netlink.Route{Dst: netlink.NewIPNet([]byte{198, 51, 100, 99}), Type: unix.RTN_BLACKHOLE}
	return func() string {
		b.Helper()
		// Once the notification of this route has arrived, so have all before it.
		check(b.T, b.lab.Do("router", func() error { return netlink.RouteAdd(mark) }))
		defer func() {
			close(quit)
			check(b.T, b.lab.Do("router", func() error { return netlink.RouteDel(mark) }))
		}()
		var all strings.Builder
		for {
			select {
			case c := <-changes:
				addr, _ := netip.AddrFromSlice(c.Dst.IP)
				switch {
				case c.Dst.IP.Equal(mark.Dst.IP):
					return all.String()
				case addr.Unmap() != b.lab.LB.VIP4 && addr != b.lab.LB.VIP6:
				case c.Type == unix.RTM_DELROUTE || len(c.MultiPath) < len(balancers):
					fmt.Fprintf(&all, "%d %v\n", c.Type, c.Route)
				}
			case <-time.After(patience):
				b.Fatal("no notification of a route")
			}
		}
	}
}
