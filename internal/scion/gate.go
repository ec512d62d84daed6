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

// gate says by which interfaces datagrams of the links are taken, as the routes go: those of an
// external link by the interface that leads to its far end. A sibling's may take another way than
// what is sent to it, and hosts are anywhere: theirs are taken by any interface but one that leads to a
// neighbour AS alone.
type gate struct {
	router *Router
	// loose takes everything by any interface.
	loose bool
	// sinks are told the rules: the slow path's sockets, the fast path.
	sinks []acceptor
	// log and fault write to the log.
	log   func(message string, fields ...any)
	fault func(message string, fields ...any)

	mu sync.Mutex
	// leads are the devices that routes lead to the far ends by, by link; services those to the AS's services.
	leads    [][]int
	services [][]int
	// inside are the devices that have the internal address.
	inside []int
	// waits counts the routes that have not been found out yet, and none is closed after the last.
	waits int
	none  chan struct{}

	last []scionplane.Accept // by link
	told bool                // of last
	// owed are links whose rule somebody did not take, failure what the log knows about that.
	owed    []bool
	failure string
	// held is for the log once the start has not failed, which is to be one line.
	held []func()
	open bool
	said string // about interfaces that lead both outside and inside
}

// acceptor takes the rule of a link.
type acceptor interface {
	SetLinkAccept(link int, a scionplane.Accept) error
}

// deviceTracker is the part of nexthop.Resolver that a gate uses.
type deviceTracker interface {
	TrackDevices(addr, from netip.Addr, bound int, report func([]int)) *nexthop.Target
}

// newGate makes a gate that has not looked at any route.
func newGate(r *Router, loose bool, info, fault func(string, ...any)) *gate {
	n := len(r.Datapath.Links)
	return &gate{router: r, loose: loose, log: info, fault: fault, leads: make([][]int, n),
		last: make([]scionplane.Accept, n), owed: make([]bool, n), none: make(chan struct{})}
}

// info writes to the log, when it is open.
func (g *gate) info(message string, fields ...any) {
	if g.open {
		g.log(message, fields...)
		return
	}
	g.held = append(g.held, func() { g.log(message, fields...) })
}

// openLog writes what there has been to say, and from now on at once.
func (g *gate) openLog() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, say := range g.held {
		say()
	}
	g.held, g.open = nil, true
}

// start has the routes followed and returns when all of them are known. Bound gives the devices that
// the links' sockets are bound to, by link; it may be nil.
func (g *gate) start(ctx context.Context, t deviceTracker, bound []int) error {
	if g.loose {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.tell()
	}
	if err := g.look(); err != nil {
		return err
	}
	links := g.router.Datapath.Links
	internal := links[0].Local.Addr()
	services := g.router.Datapath.Services
	g.services = make([][]int, len(services))
	g.waits = len(links) - 1 + len(services)
	if bound == nil {
		bound = make([]int, len(links))
	}
	track := func(to, from netip.Addr, bound int, place *[]int) {
		first := true
		t.TrackDevices(to, from, bound, func(found []int) {
			g.found(place, found, first)
			first = false
		})
	}
	for i, l := range links[1:] {
		track(l.Remote.Addr(), l.Local.Addr(), bound[i+1], &g.leads[i+1])
	}
	for i, a := range services {
		track(a, internal, bound[0], &g.services[i])
	}
	if len(links) == 1 && len(services) == 0 {
		close(g.none)
	}
	select {
	case <-g.none:
	case <-ctx.Done():
		return ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tell()
}

// found takes in the devices of one route.
func (g *gate) found(place *[]int, devices []int, first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	*place = devices
	if first {
		if g.waits--; g.waits == 0 {
			close(g.none)
		}
	}
	if g.waits == 0 && g.told {
		g.change()
	}
}

// look finds the devices that have the internal address. Nobody tells of it.
func (g *gate) look() error {
	if g.loose {
		return nil
	}
	inside, err := devicesWith(g.router.Datapath.Links[0].Local.Addr())
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if slices.Equal(inside, g.inside) {
		return nil
	}
	g.inside = inside
	if g.told {
		g.change()
	}
	return nil
}

// add tells the rules to one more.
func (g *gate) add(sink acceptor) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sinks = append(g.sinks, sink)
	if !g.told {
		return nil
	}
	for link, a := range g.last {
		if err := sink.SetLinkAccept(link, a); err != nil {
			return err
		}
	}
	return nil
}

// change tells of what has changed.
func (g *gate) change() {
	failure := ""
	if err := g.tell(); err != nil {
		failure = oneLine(err)
	}
	if failure != "" && failure != g.failure {
		g.fault("Interfaces of a link not set: it is tried again", "err", failure)
	}
	g.failure = failure
}

// again tells the rules that somebody did not take.
func (g *gate) again() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.told && slices.Contains(g.owed, true) {
		g.change()
	}
}

// tell works the rules out and tells all that are new, and those that somebody did not take. One that is not taken keeps
// nobody from the others.
func (g *gate) tell() error {
	rules, both := g.rules()
	var failed []error
	for link, a := range rules {
		if g.told && !g.owed[link] && a.Equal(g.last[link]) {
			continue
		}
		g.owed[link] = false
		for _, s := range g.sinks {
			if err := s.SetLinkAccept(link, a); err != nil {
				g.owed[link] = true
				failed = append(failed, err)
			}
		}
		if g.owed[link] {
			continue
		}
		if !g.loose && g.router.Datapath.Links[link].Scope == scionplane.ScopeExternal {
			name := g.router.Datapath.Links[link].Name
			if len(a.Devices) == 0 {
				g.info("No route leads to the far end of a link: its datagrams are dropped", "link", name)
			} else if g.told {
				g.info("Link is by other interfaces now", "link", name, "interfaces", deviceNames(a.Devices))
			}
		}
		g.last[link] = a
	}
	g.told = true
	g.say(both)
	return errors.Join(failed...)
}

// say tells the log, once, of interfaces that the rules cannot be strict about.
func (g *gate) say(both []int) {
	text := deviceNames(both)
	if text == g.said {
		return
	}
	g.said = text
	if text != "" {
		g.info("Interfaces lead to other ASes and may lead inside, too: who can send there can pose as a host of the AS or as a sibling",
			"interfaces", text)
	}
}

// rules are those of all links, and the devices that lead both to a neighbour AS and inside.
func (g *gate) rules() (rules []scionplane.Accept, both []int) {
	links := g.router.Datapath.Links
	rules = make([]scionplane.Accept, len(links))
	if g.loose {
		for i := range rules {
			rules[i].Except = true
		}
		return rules, nil
	}
	inside := slices.Clone(g.inside)
	var outside []int
	for i, l := range links {
		switch l.Scope {
		case scionplane.ScopeExternal:
			outside = append(outside, g.leads[i]...)
		case scionplane.ScopeSibling:
			inside = append(inside, g.leads[i]...)
		}
	}
	for _, s := range g.services {
		inside = append(inside, s...)
	}
	inside = slices.DeleteFunc(inside, isLoopback)
	slices.Sort(outside)
	outside = slices.Compact(outside)
	var refused []int
	for _, d := range slices.DeleteFunc(outside, isLoopback) { // this host's own programs are inside
		// Where nothing says which way inside is, it may be any.
		if slices.Contains(inside, d) || len(inside) == 0 && !links[0].Local.Addr().IsLoopback() {
			both = append(both, d)
		} else {
			refused = append(refused, d)
		}
	}
	for i, l := range links {
		if l.Scope == scionplane.ScopeExternal {
			rules[i] = scionplane.Accept{Devices: g.leads[i]}
		} else {
			rules[i] = scionplane.Accept{Except: true, Devices: refused}
		}
	}
	return rules, both
}

// SetLinkInterfaces gives a data plane without a process the rules as the routes go now, and names the
// interfaces that lead both to other ASes and inside.
func SetLinkInterfaces(ctx context.Context, r *Router, plane scionplane.Plane, loose bool) (both string, err error) {
	return lookOnce(ctx, r, loose, plane)
}

// BothWays names the interfaces of this network namespace that lead both to other ASes and inside,
// with commas between them.
func BothWays(r *Router) (string, error) { return lookOnce(context.Background(), r, false) }

// lookOnce tells the rules as the routes go now.
func lookOnce(ctx context.Context, r *Router, loose bool, sinks ...acceptor) (both string, err error) {
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
	return g.said, nil
}
