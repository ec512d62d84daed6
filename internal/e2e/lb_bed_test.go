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

// backendAddrs are the addresses by which the balancers reach the backends, as the topology has them.
var backendAddrs = map[string]netip.Addr{
	"b1": netip.MustParseAddr("198.18.21.2"),
	"b2": netip.MustParseAddr("198.18.22.2"),
	"b3": netip.MustParseAddr("2001:db8:23::2"),
	"b4": netip.MustParseAddr("2001:db8:24::2"),
}

// webVIPs returns the VIPs of the web service, the IPv4 one first.
func (b *balanced) webVIPs() []netip.AddrPort {
	return []netip.AddrPort{netip.AddrPortFrom(b.lab.LB.VIP4, 80), netip.AddrPortFrom(b.lab.LB.VIP6, 80)}
}

// lb runs 'culvert lb' on both balancers, once for each VIP of the web service. VIP in the arguments stands for its name.
func (b *balanced) lb(args ...string) {
	b.Helper()
	for _, ns := range balancers {
		b.lbOn(ns, args...)
	}
}

// lbOn is lb on one balancer.
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

// view calls look with the load balancer's data plane and state.
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

// eachBackend calls visit with a backend's entry of each VIP.
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

// newFlows returns how many flows the balancers have assigned to a backend, of all VIPs together.
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

// hasState tells whether a balancer has a backend in a state for all VIPs, and has it in its rings only if the state is up.
func (b *balanced) hasState(ns, backend string, state lbplane.HealthState) bool {
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

// await waits until backends are in a state on both balancers. That takes some intervals of the checks, on a busy machine
// many.
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
		b.wait(fmt.Sprintf("%s to be %s on %s", name, state, ns), func() bool { return b.hasState(ns, name, state) })
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

// awaitNextHops waits until router has the given numbers of next hops to the IPv4 and the IPv6 VIP.
func (b *balanced) awaitNextHops(v4, v6 int) {
	b.Helper()
	for vip, want := range map[netip.Addr]int{b.lab.LB.VIP4: v4, b.lab.LB.VIP6: v6} {
		b.wait(fmt.Sprintf("%d next hops to %s", want, vip), func() bool {
			n, err := b.lab.NextHops("router", vip)
			check(b.T, err)
			return n == want
		})
	}
}

// normal waits until all backends are up and router has next hops to both balancers.
func (b *balanced) normal() {
	b.Helper()
	b.await(lbplane.Up, providers...)
	b.awaitNextHops(len(balancers), len(balancers))
}

// end stops culvert on a balancer with a signal.
func (b *balanced) end(ns string, sig syscall.Signal) {
	b.Helper()
	check(b.T, b.lab.Stop(lab.CulvertProcess(ns), sig))
}

// begin starts culvert again, and waits until it serves and router has a next hop to it.
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

// fresh opens n new connections to each VIP, one after the other, and counts the answers by backend.
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

// freshCount is how many connections show that a backend gets none. One of four backends gets none by chance with probability
// 2^-33.
const freshCount = 40

// wantWithout opens new connections and wants the given backends to get none, and all others some.
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

// wantBack waits until the given backends get new connections.
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

// awaitHops waits until a balancer has next hops to all backends of a VIP without checks.
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
