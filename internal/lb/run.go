// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/host/nexthop"
	"culvert/internal/host/pulse"
	"culvert/internal/lb/health"
	"culvert/internal/lb/lbplane"
)

// Options of Run.
type Options struct {
	Instance *datapath.Instance
	Log      *slog.Logger
	// Announcer announces the addresses of VIPs that are served. It is nil if they are not to be announced.
	Announcer Announcer
	// Peers exchanges flows with other load balancers. It is nil if none are exchanged.
	Peers Peers
	// Withheld tells whether nothing is to be announced for now: the node is in maintenance. It may be nil.
	Withheld func() bool
	// Handover is what the Run before has left. It may be nil.
	Handover *Handover
	// Turns is the pulse of the loop of Run, and Checks that of the health checks. They may be nil.
	Turns, Checks *pulse.Pulse
}

// Announcer announces addresses to routers.
type Announcer interface {
	// Set announces these prefixes and withdraws all others.
	Set(context.Context, []netip.Prefix) error
}

// Peers exchanges flows with other load balancers.
type Peers interface {
	// Follow is called with each state that the data plane follows from now on, or follows with other routes or results of checks.
	Follow(State)
	// Ready tells whether addresses may be announced: the others have told their flows, or time is up.
	Ready() bool
}

const (
	// pollPeriod is the time between two looks at the serial number of the state, which changes with edits by others.
	pollPeriod = 100 * time.Millisecond
	// lookEvery is the number of polls between two looks at interfaces and VLANs.
	lookEvery = 10
	// gatherTime is how long changes are gathered before they are written together.
	gatherTime = 5 * time.Millisecond
)

// runner keeps the data plane of a load balancer up to date with routes, health and edits.
type runner struct {
	Options
	plane    *lbplane.Plane
	resolver *nexthop.Resolver
	changed  chan struct{}

	mu    sync.Mutex
	found map[netip.Addr]route // by the resolver; other routes are those in the data plane

	// The fields below belong to the goroutine of run.
	health    *checks
	gc        *lbplane.GC
	targets   map[netip.Addr]*nexthop.Target
	settling  settling
	announced []netip.Prefix // to be announced
	upToDate  bool           // the Announcer has announced
	spoken    bool           // the Announcer has been set at least once
	said      []netip.Prefix // what it has been set to last
	detached  bool
	unchecked bool              // checks could not be set
	drained   map[string]bool   // by VIP, and by VIP and backend
	failed    map[string]string // the errors that have been logged, by what fails
	measured  time.Time         // when the flow table was last looked at
	full      bool              // whether it was full then, and has not emptied to four fifths since
}

// Run keeps next hops, rings and announcements up to date with the routing table, with health checks and with edits by
// others, and frees dead flows, until ctx ends. It returns the error of ctx, and leaves the data plane as it is.
func Run(ctx context.Context, o Options) error {
	plane, err := lbplane.View(o.Instance)
	if err != nil {
		return err
	}
	r := &runner{
		Options: o, plane: plane, changed: make(chan struct{}, 1), gc: lbplane.NewGC(o.Instance),
		found: make(map[netip.Addr]route), targets: make(map[netip.Addr]*nexthop.Target), failed: make(map[string]string),
	}
	ctx, cancel := context.WithCancel(ctx)
	r.resolver, err = nexthop.New(ctx, resolverOptions(o.Instance, func(err error) { o.Log.Warn("following the routing table", "err", err) }))
	if err != nil {
		cancel()
		return err
	}
	r.health = newChecks(ctx, o, r.wake)
	r.takeOver()
	defer r.finish(ctx, func() { cancel(); r.resolver.Wait(); r.health.close(); r.health.keep(plane); r.gc.Close() })
	return r.run(ctx)
}

func resolverOptions(inst *datapath.Instance, onError func(error)) nexthop.Options {
	return nexthop.Options{OnError: onError, VLAN: true, Source: true, Generic: inst.Generic()}
}

func (r *runner) run(ctx context.Context) error {
	tick := time.NewTicker(pollPeriod)
	defer tick.Stop()
	var serial uint64
	due := true
	defer r.Turns.End()
	defer r.Checks.End()
	for look := 0; ; look++ {
		r.Turns.Beat()
		if !r.health.checker.Late(time.Now()) {
			r.Checks.Beat()
		}
		if look%lookEvery == 0 {
			due = r.look() || r.unchecked || due
			changed, err := r.plane.FollowVLANs()
			r.failing(ctx, "VLANs are not followed", err)
			due = changed || due
		}
		now, err := r.plane.Serial()
		if err != nil {
			return err
		}
		if due || now != serial {
			due, serial = r.step(ctx) != nil, now
		}
		r.health.keep(r.plane)
		r.failing(ctx, "dead flows stay in the flow table", r.gc.Step())
		r.settle()
		r.watchTable(ctx)
		if !r.upToDate && !due && r.mayAnnounce() { // a step that is due may change what is announced
			r.announce(ctx)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-r.changed:
			due = true
			select { // changes come in bursts
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(gatherTime):
			}
		}
	}
}

// look returns whether the data plane has been attached or detached since the last call.
func (r *runner) look() (changed bool) {
	was := r.detached
	r.detached = len(r.Instance.AttachedNow()) == 0
	if r.detached && !was {
		r.settling = settling{}
	}
	return r.detached != was
}

// measurePeriod is the time between two looks at how full the flow table is, which take some milliseconds.
const measurePeriod = 10 * time.Second

// errFull is the error of a flow table that is full.
var errFull = errors.New("the flow table is full: raise flows in [lb], a reload keeps the flows")

// watchTable logs once when the flow table is full.
func (r *runner) watchTable(ctx context.Context) {
	now := time.Now()
	if r.detached || now.Sub(r.measured) < measurePeriod {
		return
	}
	r.measured = now
	used, err := r.plane.FlowEstimate()
	if err != nil {
		return // what shows the flow table shows the error
	}
	switch lbplane.Fullness(used, r.plane.Options().Flows) {
	case "full":
		r.full = true
	case "":
		r.full = false
	}
	err = nil
	if r.full {
		err = errFull
	}
	r.failing(ctx, "new flows may find no room in the flow table, and move when backends change", err)
}

// failing logs an error of what once, until it changes or is nil.
func (r *runner) failing(ctx context.Context, what string, err error) {
	if err == nil || ctx.Err() != nil {
		delete(r.failed, what)
		return
	}
	if err.Error() != r.failed[what] {
		r.failed[what] = err.Error()
		r.Log.Error(what, "err", err)
	}
}

// step brings the data plane up to date. It logs a failure once, and run calls it again.
func (r *runner) step(ctx context.Context) error {
	if r.detached {
		return nil // until it is attached again, by another process
	}
	err := lbplane.Edit(r.Instance, func(p *lbplane.Plane) error { return r.sync(ctx, p) })
	r.failing(ctx, "the load balancer does not follow", err)
	return err
}

func (r *runner) sync(ctx context.Context, p *lbplane.Plane) error {
	s, before, old, err := read(p)
	if err != nil {
		return err
	}
	r.track(&s)
	err = r.health.set(p, &s)
	r.unchecked = err != nil // run tries again
	r.failing(ctx, "backends are not checked", err)
	now := live{routes: maps.Clone(old.routes), down: r.health.down(old.down)}
	r.mu.Lock()
	maps.Copy(now.routes, r.found)
	r.mu.Unlock()
	if err := follow(p, p.Options().RingSize, s, before, now); err != nil {
		return err
	}
	if _, err := p.FollowVLANs(); err != nil {
		return err
	}
	r.logBackends(&s, old, now)
	r.logDrains(&s)
	r.settling.update(&s, old, now)
	if r.Peers != nil {
		r.Peers.Follow(s.clone())
	}
	return nil
}

// track follows the routes to all backends of the state, and to no others.
func (r *runner) track(s *State) {
	wanted := make(map[netip.Addr]bool)
	for _, v := range s.VIPs {
		for _, b := range v.Backends {
			wanted[b.Addr] = true
		}
	}
	for addr := range wanted {
		if r.targets[addr] == nil {
			r.targets[addr] = r.resolver.Track(addr, netip.Addr{}, func(nh nexthop.NextHop) { r.resolved(addr, nh) })
		}
	}
	for addr, t := range r.targets {
		if !wanted[addr] {
			t.Stop()
			delete(r.targets, addr)
			r.mu.Lock()
			delete(r.found, addr)
			r.mu.Unlock()
		}
	}
}

func routeOf(nh nexthop.NextHop) route {
	return route{
		hop: lbplane.Hop{
			Port: nh.IfIndex, SrcMAC: nh.SrcMAC, DstMAC: nh.DstMAC, MTU: nh.MTU, VLAN: nh.VLAN, LinearOnly: nh.LinearOnly,
		},
		source: nh.Source,
	}
}

func (r *runner) resolved(addr netip.Addr, nh nexthop.NextHop) {
	r.mu.Lock()
	r.found[addr] = routeOf(nh)
	r.mu.Unlock()
	r.wake()
}

func (r *runner) wake() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// whyUp returns, for the log, why a backend counts as up.
func (r *runner) whyUp(v *VIP, b *Backend) string {
	switch {
	case v.Check == nil:
		return "none: it counts as up"
	case r.health.result(b.ID).State == health.Up:
		return "answered"
	default:
		return "has not answered yet: it counts as up"
	}
}

// logDrains logs which VIPs and backends have been drained, and which are not drained any more.
func (r *runner) logDrains(s *State) {
	now := make(map[string]bool)
	for _, v := range s.VIPs {
		now[v.Service.String()] = v.Drained
		for _, b := range v.Backends {
			now[v.Service.String()+" "+b.Addr.String()] = b.Drained
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		vip, backend, of := strings.Cut(name, " ")
		log, about := r.Log.With("vip", vip), "VIP"
		if of {
			log, about = log.With("backend", backend), "backend"
		}
		switch {
		case now[name] && !r.drained[name]:
			log.Warn(about + " is drained by hand, until 'culvert lb undrain'")
		case !now[name] && r.drained[name]:
			log.Info(about + " is not drained any more")
		}
	}
	r.drained = now
}

// logBackends logs which backends can get flows now, and which no longer.
func (r *runner) logBackends(s *State, old, now live) {
	for _, v := range s.VIPs {
		for _, b := range v.Backends {
			was, is := s.obstacle(&v, &b, old), s.obstacle(&v, &b, now)
			switch {
			case was == is:
			case is == "":
				r.Log.Info("backend is up", "vip", v.Service, "backend", b.Addr, "check", r.whyUp(&v, &b))
			default:
				r.Log.Warn("backend is down", "vip", v.Service, "backend", b.Addr, "why", is, "check", r.health.result(b.ID).Text)
			}
		}
		if was, is := s.serves(&v, old), s.serves(&v, now); was && !is {
			r.Log.Warn("no backend takes new flows", "vip", v.Service)
		}
	}
}

// Resolve resolves the next hops of all backends once, for a data plane without a process. It waits until ctx ends, and
// returns the backends that have not been resolved by then.
func Resolve(ctx context.Context, inst *datapath.Instance) (missing []netip.Addr, err error) {
	plane, err := lbplane.View(inst)
	if err != nil {
		return nil, err
	}
	s, err := Load(plane)
	if err != nil {
		return nil, err
	}
	found, missing, err := resolveOnce(ctx, inst, &s)
	if err != nil {
		return nil, err
	}
	return missing, lbplane.Edit(inst, func(p *lbplane.Plane) error {
		s, before, l, err := read(p)
		if err != nil {
			return err
		}
		maps.Copy(l.routes, found)
		return follow(p, p.Options().RingSize, s, before, l)
	})
}

func resolveOnce(ctx context.Context, inst *datapath.Instance, s *State) (found map[netip.Addr]route, missing []netip.Addr, err error) {
	wanted := make(map[netip.Addr]bool)
	for _, v := range s.VIPs {
		for _, b := range v.Backends {
			wanted[b.Addr] = true
		}
	}
	if len(wanted) == 0 {
		return nil, nil, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resolver, err := nexthop.New(ctx, resolverOptions(inst, nil))
	if err != nil {
		return nil, nil, err
	}
	found = make(map[netip.Addr]route) // belongs to the resolver until it has stopped
	for addr := range wanted {
		resolver.Track(addr, netip.Addr{}, func(nh nexthop.NextHop) {
			if nh.Resolved() {
				found[addr] = routeOf(nh)
			}
			if len(found) == len(wanted) {
				cancel()
			}
		})
	}
	<-ctx.Done()
	resolver.Wait()
	for addr := range wanted {
		if _, ok := found[addr]; !ok {
			missing = append(missing, addr)
		}
	}
	slices.SortFunc(missing, netip.Addr.Compare)
	return found, missing, nil
}
