// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"

	"culvert/internal/host/nexthop"
	"culvert/internal/scion/scionplane"
)

// gate derives from the routes by which interfaces the datagrams of each link are accepted. Those of an external link
// are accepted by the interfaces that the routes to its far end lead to. Datagrams of siblings and hosts may come by
// another interface than the route back, so they are accepted by every interface but those that lead to neighbor ASes
// alone.
type gate struct {
	router *Router
	// loose accepts all datagrams by any interface.
	loose bool
	// sinks get the rules: the filter of the slow path's sockets, and the fast path.
	sinks []acceptor
	// log and fault write to the log.
	log   func(message string, fields ...any)
	fault func(message string, fields ...any)

	mu sync.Mutex
	// linkDevices has the devices that the routes to the far end of each link lead to, serviceDevices those of the routes
	// to each service of the AS.
	linkDevices    [][]int
	serviceDevices [][]int
	// internalDevices are the devices that have the internal address.
	internalDevices []int
	// unresolved counts the routes that have not been looked up yet. The last one closes resolved.
	unresolved int
	resolved   chan struct{}

	// applied has the rule of each link that all sinks have accepted last, and started tells whether there has been one.
	applied []scionplane.Accept
	started bool
	// refused marks the links whose rule a sink has refused. lastFailure is the failure in the log, empty for none.
	refused     []bool
	lastFailure string
	// deferred holds the log's entries until logOpen, so that a start which fails logs nothing but its error.
	deferred []func()
	logOpen  bool
	// warned names the interfaces that the log's last warning was about.
	warned string
}

// acceptor is a sink of a gate's rules.
type acceptor interface {
	SetLinkAccept(link int, a scionplane.Accept) error
}

// deviceTracker is the part of nexthop.Resolver that a gate uses.
type deviceTracker interface {
	TrackDevices(addr, from netip.Addr, bound int, report func([]int)) *nexthop.Target
}

// newGate makes a gate that follows no routes yet.
func newGate(r *Router, loose bool, info, fault func(string, ...any)) *gate {
	n := len(r.Datapath.Links)
	return &gate{router: r, loose: loose, log: info, fault: fault, linkDevices: make([][]int, n),
		applied: make([]scionplane.Accept, n), refused: make([]bool, n), resolved: make(chan struct{})}
}

// info writes to the log, or defers the entry until openLog.
func (g *gate) info(message string, fields ...any) {
	if g.logOpen {
		g.log(message, fields...)
		return
	}
	g.deferred = append(g.deferred, func() { g.log(message, fields...) })
}

// openLog writes the deferred entries. Later ones are written at once.
func (g *gate) openLog() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, entry := range g.deferred {
		entry()
	}
	g.deferred, g.logOpen = nil, true
}

// start follows the routes to all far ends and services. It returns once all of them are known and the rules are applied.
// Bound has the device that the socket of each link is bound to, 0 for none; it may be nil.
func (g *gate) start(ctx context.Context, t deviceTracker, bound []int) error {
	if g.loose {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.apply()
	}
	if err := g.lookUpInternal(); err != nil {
		return err
	}
	links := g.router.Datapath.Links
	internal := links[0].Local.Addr()
	services := g.router.Datapath.Services
	g.serviceDevices = make([][]int, len(services))
	g.unresolved = len(links) - 1 + len(services)
	if bound == nil {
		bound = make([]int, len(links))
	}
	track := func(to, from netip.Addr, bound int, devices *[]int) {
		first := true
		t.TrackDevices(to, from, bound, func(found []int) {
			g.found(devices, found, first)
			first = false
		})
	}
	for i, l := range links[1:] {
		track(l.Remote.Addr(), l.Local.Addr(), bound[i+1], &g.linkDevices[i+1])
	}
	for i, a := range services {
		track(a, internal, bound[0], &g.serviceDevices[i])
	}
	if len(links) == 1 && len(services) == 0 {
		close(g.resolved)
	}
	select {
	case <-g.resolved:
	case <-ctx.Done():
		return ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.apply()
}

// found sets the devices of one route, and updates the rules once all routes are known.
func (g *gate) found(devices *[]int, found []int, first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	*devices = found
	if first {
		if g.unresolved--; g.unresolved == 0 {
			close(g.resolved)
		}
	}
	if g.unresolved == 0 && g.started {
		g.update()
	}
}

// lookUpInternal looks up the devices that have the internal address. It has to be called again and again: the gate gets
// no notifications about addresses.
func (g *gate) lookUpInternal() error {
	if g.loose {
		return nil
	}
	devices, err := devicesWith(g.router.Datapath.Links[0].Local.Addr())
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if slices.Equal(devices, g.internalDevices) {
		return nil
	}
	g.internalDevices = devices
	if g.started {
		g.update()
	}
	return nil
}

// addSink adds a sink and gives it the rules that there are.
func (g *gate) addSink(sink acceptor) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sinks = append(g.sinks, sink)
	if !g.started {
		return nil
	}
	for link, a := range g.applied {
		if err := sink.SetLinkAccept(link, a); err != nil {
			return err
		}
	}
	return nil
}

// update applies the rules, and logs a failure when it is new.
func (g *gate) update() {
	failure := ""
	if err := g.apply(); err != nil {
		failure = oneLine(err)
	}
	if failure != "" && failure != g.lastFailure {
		g.fault("Interfaces of a link not set: it is tried again", "err", failure)
	}
	g.lastFailure = failure
}

// retry applies the rules that a sink has refused once more.
func (g *gate) retry() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.started && slices.Contains(g.refused, true) {
		g.update()
	}
}

// rewrite gives the sinks all rules again: another gate may have given them others.
func (g *gate) rewrite() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for link := range g.refused {
		g.refused[link] = true
	}
	if g.started {
		g.update()
	}
}

// apply computes the rules and gives the sinks those that are new and those that a sink has refused. A refusal stops
// neither the other rules nor the other sinks. The caller holds the lock.
func (g *gate) apply() error {
	rules, both := g.computeRules()
	var failed []error
	for link, a := range rules {
		if g.started && !g.refused[link] && a.Equal(g.applied[link]) {
			continue
		}
		g.refused[link] = false
		for _, s := range g.sinks {
			if err := s.SetLinkAccept(link, a); err != nil {
				g.refused[link] = true
				failed = append(failed, err)
			}
		}
		if g.refused[link] {
			continue
		}
		changed := !g.started || !a.Equal(g.applied[link])
		if changed && !g.loose && g.router.Datapath.Links[link].Scope == scionplane.ScopeExternal {
			name := g.router.Datapath.Links[link].Name
			if len(a.Devices) == 0 {
				g.info("No route leads to the far end of a link: its datagrams are dropped", "link", name)
			} else if g.started {
				g.info("Link leads to other interfaces now", "link", name, "interfaces", deviceNames(a.Devices))
			}
		}
		g.applied[link] = a
	}
	g.started = true
	g.warn(both)
	return errors.Join(failed...)
}

// warn logs the interfaces that lead both to other ASes and inside, when they have changed.
func (g *gate) warn(both []int) {
	text := deviceNames(both)
	if text == g.warned {
		return
	}
	g.warned = text
	if text != "" {
		g.info("Interfaces lead to other ASes and may lead inside, too: who can send there can pose as a host of the AS or as a sibling",
			"interfaces", text)
	}
}

// lastWarned returns the interfaces of the last warning.
func (g *gate) lastWarned() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.warned
}

// computeRules returns the rule of each link, and the devices that lead both to a neighbor AS and inside.
func (g *gate) computeRules() (rules []scionplane.Accept, both []int) {
	links := g.router.Datapath.Links
	rules = make([]scionplane.Accept, len(links))
	if g.loose {
		for i := range rules {
			rules[i].Except = true
		}
		return rules, nil
	}
	inside := slices.Clone(g.internalDevices)
	var outside []int
	for i, l := range links {
		switch l.Scope {
		case scionplane.ScopeExternal:
			outside = append(outside, g.linkDevices[i]...)
		case scionplane.ScopeSibling:
			inside = append(inside, g.linkDevices[i]...)
		}
	}
	for _, s := range g.serviceDevices {
		inside = append(inside, s...)
	}
	inside = slices.DeleteFunc(inside, isLoopback)
	slices.Sort(outside)
	outside = slices.Compact(outside)
	var refused []int
	for _, d := range slices.DeleteFunc(outside, isLoopback) { // processes of this host are inside
		// With no device known to lead inside, any may.
		if slices.Contains(inside, d) || len(inside) == 0 && !links[0].Local.Addr().IsLoopback() {
			both = append(both, d)
		} else {
			refused = append(refused, d)
		}
	}
	for i, l := range links {
		if l.Scope == scionplane.ScopeExternal {
			rules[i] = scionplane.Accept{Devices: g.linkDevices[i]}
		} else {
			rules[i] = scionplane.Accept{Except: true, Devices: refused}
		}
	}
	return rules, both
}

// SetLinkInterfaces sets the rules of a data plane that no process serves by the routes of this moment. It returns the
// names of the interfaces that lead both to other ASes and inside, with commas between them.
func SetLinkInterfaces(ctx context.Context, r *Router, plane scionplane.Plane, loose bool) (both string, err error) {
	return applyOnce(ctx, r, loose, plane)
}

// BothWays returns the names of the interfaces of this network namespace that lead both to other ASes and inside, with
// commas between them.
func BothWays(r *Router) (string, error) { return applyOnce(context.Background(), r, false) }

// applyOnce gives the sinks the rules of this moment, and returns what BothWays does.
func applyOnce(ctx context.Context, r *Router, loose bool, sinks ...acceptor) (both string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resolver, err := nexthop.New(ctx, nexthop.Options{})
	if err != nil {
		return "", err
	}
	defer resolver.Wait()
	defer cancel()
	quiet := func(string, ...any) {}
	g := newGate(r, loose, quiet, quiet)
	g.sinks = sinks
	if err := g.start(ctx, resolver, nil); err != nil {
		return "", err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.warned, nil
}
