// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/lab"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
)

// balanced is a lab of topology lb: two load balancers in front of four web servers.
type balanced struct {
	*testing.T
	lab *lab.Lab
}

var (
	balancers = []string{"lb1", "lb2"}
	providers = []string{"b1", "b2", "b3", "b4"}
)

// backendAddrs are where the balancers reach the backends, as the topology has it.
var backendAddrs = map[string]netip.Addr{
	"b1": netip.MustParseAddr("198.18.21.2"),
	"b2": netip.MustParseAddr("198.18.22.2"),
	"b3": netip.MustParseAddr("2001:db8:23::2"),
	"b4": netip.MustParseAddr("2001:db8:24::2"),
}

// webVIPs are the addresses of the service, IPv4's first.
func (b *balanced) webVIPs() []netip.AddrPort {
	return []netip.AddrPort{netip.AddrPortFrom(b.lab.LB.VIP4, 80), netip.AddrPortFrom(b.lab.LB.VIP6, 80)}
}

// lb runs 'culvert lb' on both balancers, once for each family's VIP, whose name takes the place of VIP.
func (b *balanced) lb(args ...string) {
	b.Helper()
	for _, ns := range balancers {
		b.lbOn(ns, args...)
	}
}

func (b *balanced) lbOn(ns string, args ...string) {
	b.Helper()
	for _, vip := range b.webVIPs() {
		with := slices.Clone(args)
		for n := range with {
			with[n] = strings.ReplaceAll(with[n], "VIP", vip.String()+"/tcp")
		}
		culvert(b.T, b.lab, ns, append([]string{"lb"}, with...)...)
	}
}

// view looks at the data plane of a balancer.
func (b *balanced) view(ns string, look func(*lbplane.Plane, lb.State) error) {
	b.Helper()
	var here []*datapath.Instance
	check(b.T, b.lab.Do(ns, func() (err error) {
		here, err = datapath.ListHere()
		return err
	}))
	defer func() {
		for _, i := range here {
			i.Close()
		}
	}()
	if len(here) != 1 {
		b.Fatalf("%d data planes in %s, want one", len(here), ns)
	}
	p, err := lbplane.View(here[0])
	check(b.T, err)
	s, err := lb.Load(p)
	check(b.T, err)
	check(b.T, look(p, s))
}

// eachBackend visits what a balancer makes of a backend, for each VIP.
func (b *balanced) eachBackend(ns, backend string, visit func(*lbplane.Plane, lb.Backend) error) {
	b.Helper()
	b.view(ns, func(p *lbplane.Plane, s lb.State) error {
		for _, v := range s.VIPs {
			for _, m := range v.Backends {
				if m.Addr == backendAddrs[backend] {
					if err := visit(p, m); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}

// newFlows is how many flows the balancers have given a backend, of all VIPs together.
func (b *balanced) newFlows(backend string) (n uint64) {
	b.Helper()
	for _, ns := range balancers {
		b.eachBackend(ns, backend, func(p *lbplane.Plane, m lb.Backend) error {
			traffic, err := p.Traffic(m.ID.Number())
			n += traffic.Flows
			return err
		})
	}
	return n
}

// judged tells whether a balancer has found out for all VIPs that a backend is in a state, and has it in its rings
// accordingly, or else gives them to the kernel.
func (b *balanced) judged(ns, backend string, state lbplane.HealthState) bool {
	b.Helper()
	same := true
	b.view(ns, func(p *lbplane.Plane, s lb.State) error {
		vips, err := p.VIPs()
		if err != nil {
			return err
		}
		for _, v := range s.VIPs {
			n := slices.IndexFunc(v.Backends, func(m lb.Backend) bool { return m.Addr == backendAddrs[backend] })
			id := v.Backends[n].ID
			h, err := p.Health(id.Number())
			if err != nil {
				return err
			}
			ring, err := p.Ring(v.Number)
			if err != nil {
				return err
			}
			takes := !vips[v.Service.Key()].Empty && slices.Contains(ring, id)
			same = same && h.Backend == id && h.State == state && takes == (state == lbplane.Up)
		}
		return nil
	})
	return same
}

// await waits for a state of backends. It may be some intervals away, on a busy machine many.
func (b *balanced) await(state lbplane.HealthState, backends ...string) {
	b.Helper()
	for _, ns := range balancers {
		b.awaitOn(ns, state, backends...)
	}
}

// awaitOn is await on one balancer.
func (b *balanced) awaitOn(ns string, state lbplane.HealthState, backends ...string) {
	b.Helper()
	for _, name := range backends {
		b.wait(fmt.Sprintf("%s to be %s on %s", name, state, ns), func() bool { return b.judged(ns, name, state) })
	}
}

func (b *balanced) wait(what string, done func() bool) {
	b.Helper()
	for end := time.Now().Add(2 * patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("%s: not after %s", what, 2*patience)
		}
	}
}

// awaitWays waits until router has that many balancers to choose from, for each family.
func (b *balanced) awaitWays(v4, v6 int) {
	b.Helper()
	for vip, want := range map[netip.Addr]int{b.lab.LB.VIP4: v4, b.lab.LB.VIP6: v6} {
		b.wait(fmt.Sprintf("%d ways to %s", want, vip), func() bool {
			n, err := b.lab.NextHops("router", vip)
			check(b.T, err)
			return n == want
		})
	}
}

// normal waits until everything is as at the start.
func (b *balanced) normal() {
	b.Helper()
	b.await(lbplane.Up, providers...)
	b.awaitWays(len(balancers), len(balancers))
}

// end stops culvert on a balancer.
func (b *balanced) end(ns string, sig syscall.Signal) {
	b.Helper()
	check(b.T, b.lab.Stop(lab.CulvertProcess(ns), sig))
}

// begin starts it again, and waits until it serves and is known to router.
func (b *balanced) begin(ns string) {
	b.Helper()
	check(b.T, b.lab.StartBalancer(ns))
	b.normal()
}

// ip runs ip(8) in a namespace.
func (b *balanced) ip(ns string, args ...string) {
	b.Helper()
	_, err := b.lab.Run(b.Context(), ns, append([]string{"ip"}, args...)...)
	check(b.T, err)
}

// fresh opens that many new connections to each VIP, one after the other, and tells who has answered them.
func (b *balanced) fresh(n int) map[string]int {
	b.Helper()
	names := make(map[string]int)
	for range n {
		for _, vip := range b.webVIPs() {
			c, err := dialWeb(b.lab, vip)
			check(b.T, err)
			name, err := c.name()
			c.Close()
			if err != nil {
				b.Fatalf("a new connection to %s: %v", vip, err)
			}
			names[name]++
		}
	}
	return names
}

// freshCount is how many connections tell that a backend gets none: of four, one gets none in 2^-33 of all cases.
const freshCount = 40

// wantWithout opens new connections, and wants a backend to get none.
func (b *balanced) wantWithout(backends ...string) {
	b.Helper()
	var before []uint64
	for _, name := range backends {
		before = append(before, b.newFlows(name))
	}
	names := b.fresh(freshCount)
	for n, name := range backends {
		if got := b.newFlows(name) - before[n]; names[name] > 0 || got > 0 {
			b.Errorf("%s has got %d new flows, and has answered %d of them", name, got, names[name])
		}
	}
	if len(names) != len(providers)-len(backends) {
		b.Errorf("%v have answered, want all but %v", names, backends)
	}
}

// wantBack waits until backends get new connections.
func (b *balanced) wantBack(backends ...string) {
	b.Helper()
	names := make(map[string]int)
	b.wait(fmt.Sprintf("%v to get new connections", backends), func() bool {
		for name, n := range b.fresh(4) {
			names[name] += n
		}
		return !slices.ContainsFunc(backends, func(name string) bool { return names[name] == 0 })
	})
}

// awaitHops waits until a balancer has next hops to all backends of a VIP that has no checks.
func (b *balanced) awaitHops(ns string, vip netip.AddrPort) {
	b.Helper()
	b.wait("next hops of "+vip.String(), func() bool {
		missing := false
		b.view(ns, func(p *lbplane.Plane, s lb.State) error {
			for _, v := range s.VIPs {
				if v.Service.Addr != vip.Addr() || v.Service.Port != vip.Port() {
					continue
				}
				for _, m := range v.Backends {
					known, err := p.Backend(m.ID.Number())
					if err != nil {
						return err
					}
					missing = missing || known.Hop.Port == 0
				}
			}
			return nil
		})
		return !missing
	})
}
