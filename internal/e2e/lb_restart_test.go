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

// testGracefulRestart ends culvert on a balancer and starts it again under load, with graceful restart: router never has one way
// less. It has when VIPs are drained right before the end.
func (b *balanced) testGracefulRestart() {
	const head, graceful = "[lb.bgp]\n", "[lb.bgp]\ngraceful_restart = \"60s\"\n"
	for _, ns := range balancers {
		b.end(ns, syscall.SIGTERM)
	}
	b.startWith(head, graceful)

	w := b.load()
	lost := b.watchWays()
	b.end("lb1", syscall.SIGTERM)
	b.awaitSessions("lb1", "waited for", func(s string) bool { return strings.Contains(s, "Neighbor graceful restart active\n") })
	w.moves()
	check(b.T, b.lab.StartBalancer("lb1"))
	b.awaitSessions("lb1", "established", isEstablished)
	w.moves()
	if got := lost(); got != "" {
		b.Errorf("router has lost ways:\n%s", got)
	}

	b.lbOn("lb1", "drain", "VIP")
	b.end("lb1", syscall.SIGTERM)
	b.awaitWays(1, 1)
	w.moves()
	w.end()
	b.lbOn("lb1", "undrain", "VIP")
	b.end("lb2", syscall.SIGTERM)
	b.startWith(graceful, head)
}

func isEstablished(session string) bool {
	return strings.Contains(session, "BGP state:          Established\n")
}

// startWith starts culvert on all balancers with a part of the configuration exchanged that says whether restarts are graceful.
func (b *balanced) startWith(old, now string) {
	b.Helper()
	for _, ns := range balancers {
		config := b.lab.LB.Configs[ns]
		before, err := os.ReadFile(config)
		check(b.T, err)
		check(b.T, os.WriteFile(config, []byte(strings.Replace(string(before), old, now, 1)), 0o600))
		check(b.T, b.lab.StartBalancer(ns))
	}
	graceful := strings.Contains(now, "graceful_restart")
	for _, ns := range balancers {
		b.awaitSessions(ns, "established with the new configuration", func(s string) bool {
			return isEstablished(s) && strings.Contains(s, "Restart time: 60\n") == graceful
		})
	}
	b.normal()
}

// awaitSessions waits for a state of BIRD's sessions with a balancer.
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

// watchWays notes when router has less ways to a VIP than there are balancers, from now on. What it returns tells of that.
func (b *balanced) watchWays() (lost func() string) {
	b.Helper()
	changes, quit := make(chan netlink.RouteUpdate, 1<<10), make(chan struct{})
	check(b.T, b.lab.Do("router", func() error { return netlink.RouteSubscribe(changes, quit) }))
	mark := &netlink.Route{Dst: netlink.NewIPNet([]byte{198, 51, 100, 99}), Type: unix.RTN_BLACKHOLE}
	return func() string {
		b.Helper()
		// What came before this route has been seen when this is.
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
				b.Fatal("no news of routes")
			}
		}
	}
}
