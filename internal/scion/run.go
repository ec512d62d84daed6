// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/scionproto/scion/pkg/log"
	"github.com/scionproto/scion/pkg/private/prom"
	"github.com/scionproto/scion/private/env"
	"golang.org/x/sync/errgroup"

	"culvert/internal/datapath"
	"culvert/internal/host/nexthop"
	"culvert/internal/host/pulse"
	"culvert/internal/scion/keyring"
	"culvert/internal/scion/logtee"
	"culvert/internal/scion/scionplane"
	"culvert/internal/stats"
	"culvert/internal/version"
)

// serviceName is the reference router's name in its log.
const serviceName = "SCION Router"

// prepare takes the router's lock, and opens and checks all that the router needs but the data plane. What former has, which may
// be nil, is taken over in Serve. The router serves the given metrics too.
func (p *plan) prepare(ctx context.Context, metrics prometheus.Collector, former *fastPath) (_ *fastPath, err error) {
	r := p.router
	if err := r.loadKeys(true); err != nil {
		return nil, err
	}
	if _, err := r.Interfaces(); err != nil {
		return nil, err
	}
	if metrics == nil && former != nil {
		metrics = former.metrics
	}
	f := &fastPath{
		plan: p, former: former, metrics: metrics, found: make(map[int]nexthop.NextHop), serves: make(chan struct{}),
		turns: pulse.New("the loop that passes the links' state to the fast path", turnsWithin),
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	same := false
	if former == nil {
		lock, err := claim(ctx, r)
		if err != nil {
			return nil, err
		}
		f.lock = newSharedLock(lock)
		r.readDiscriminators()
		if err := startLog(r); err != nil {
			return nil, err
		}
		env.StartupVersion = version.WithSCION()
		exportIdentity(r.ID())
	} else {
		f.lock = former.lock.hold()
		r.followDiscriminators(former.router)
		same = p.sameCore(former.plan)
		if err := checkSockets(r, 0); err != nil {
			return nil, err
		}
	}
	var slow *SlowPath
	if former != nil {
		slow = former.slow
	}
	if f.slow, err = newSlowPath(r, slow, same); err != nil {
		return nil, err
	}
	f.slow.debugHTTP = p.file.DebugHTTP
	if former != nil && p.ServedBy(former) {
		return f, nil // it may not be needed
	}
	return f, f.follow(ctx)
}

// follow starts following routes, unless that has been done.
func (f *fastPath) follow(ctx context.Context) (err error) {
	if f.resolver != nil {
		return nil
	}
	f.gate = newGate(f.router, f.file.Loose(), log.Info, log.Error)
	if f.former != nil {
		f.gate.warned = f.former.gate.lastWarned()
	}
	// The resolver outlives ctx, which may be that of the start alone.
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f.cancel = cancel
	defer context.AfterFunc(ctx, cancel)()
	if f.resolver, err = nexthop.New(lasting, resolverOptions(f.generic)); err != nil {
		return err
	}
	return f.slow.guard.follow(lasting, f.gate, f.resolver)
}

// serveSlow serves without a fast path until ctx ends.
func (f *fastPath) serveSlow(ctx context.Context) error {
	if err := f.follow(ctx); err != nil {
		return err
	}
	if f.begin() {
		log.Info("All underlay addresses are on loopback: every packet takes the slow path")
	}
	go f.slow.guard.watch(ctx, f.gate)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.followKeys(ctx) })
	g.Go(func() error { return f.slow.Serve(ctx, nil, f.metrics) })
	return g.Wait()
}

// startLog sets logging up as the reference does.
func startLog(r *Router) error {
	console := r.Config.Logging.Console
	// The reference ignores this setting.
	console.DisableCaller = false
	if err := log.Setup(log.Config{Console: console}); err != nil {
		return badField(r.Path)("log.console", "%s", oneLine(err))
	}
	logtee.Tee()
	return nil
}

// logStart writes the reference's first log entry. It comes after all steps of the start that can fail, so that a failed
// start prints one line.
func logStart(r *Router) { _ = env.LogAppStarted(serviceName, r.ID()) }

var identity sync.Once

// exportIdentity exports the metrics with the version and the ID of the router.
func exportIdentity(id string) {
	identity.Do(func() {
		promauto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "scion_build_info",
			Help: "SCION build information",
		}, []string{"version"}).WithLabelValues(env.StartupVersion).Set(1)
		prom.ExportElementID(id)
	})
}

// fastPath updates an attached data plane when keys, neighbors or BFD sessions change.
type fastPath struct {
	*plan
	// former is the one that this one follows, until it serves.
	former   *fastPath
	lock     *sharedLock
	slow     *SlowPath
	resolver *nexthop.Resolver
	cancel   context.CancelFunc // of the resolver
	plane    DataPlane          // nil if all underlay addresses are on loopback
	journal  *journal
	gate     *gate
	metrics  prometheus.Collector // of the process
	hosts    *hostTable
	ports    ports
	turns    *pulse.Pulse // of the loop that writes the state of links to the fast path
	mirror   *bfdMirror
	// inst is the data plane, nil in tests with another one. serves is closed once the first Serve has taken over from former,
	// failed set after one that has returned an error.
	inst   *datapath.Instance
	serves chan struct{}
	failed atomic.Bool

	linkMu sync.Mutex
	// found has the last next hop of each link, also if the fast path is not attached to its device.
	found map[int]nexthop.NextHop
}

// Part implements stage.Prepared.
func (f *fastPath) Part() datapath.Part {
	p := scionplane.NewPart(f.router.Datapath)
	p.Discriminators = f.router.linkDiscriminators()
	return p
}

// Commit implements stage.Prepared. It runs after rest, because an earlier program uses the same map of keys.
func (f *fastPath) Commit(ctx context.Context, inst *datapath.Instance, rest func() error) error {
	if err := rest(); err != nil {
		return err
	}
	if f.former != nil && sameProgram(f.former.inst, inst) && f.ServedBy(f.former) {
		return nil // that one goes on
	}
	f.inst = inst
	return f.commit(ctx, plane{scionplane.Of(inst)})
}

// sameProgram tells whether a and b are handles of a data plane between which no program was loaded.
func sameProgram(a, b *datapath.Instance) bool {
	return a != nil && b != nil && a.Program() == b.Program()
}

// commit loads the key and starts following the far ends of all links. If that fails the keys are those of before.
func (f *fastPath) commit(ctx context.Context, plane DataPlane) (err error) {
	if err := f.follow(ctx); err != nil {
		return err
	}
	back, err := plane.Keep()
	if err != nil {
		return err
	}
	f.plane = plane
	f.journal = newJournal(f.router, f.plane)
	if f.hosts, err = f.followLinks(resolverTracker{f.resolver}); err != nil {
		return errors.Join(err, back())
	}
	return nil
}

// begin has the work begin, which a former one may have done until now, and writes that to the log. It tells whether there was
// none. Further calls do nothing.
func (f *fastPath) begin() (first bool) {
	if f.hasBegun() {
		f.restore()
		return false
	}
	defer close(f.serves)
	former := f.former
	f.former = nil
	f.slow.begin()
	f.gate.openLog()
	if former == nil {
		logStart(f.router)
		return true
	}
	changeLog(former.router, f.router)
	if changes := f.Changes(former.plan, nil); len(changes) > 0 {
		log.Info("Router goes on with a changed configuration", "changes", strings.Join(changes, "; "))
	}
	f.mirror = former.mirror
	f.gate.rewrite() // the former one may have written since Commit
	return false
}

// Taken implements stage.Taker: the former router's slow path answers until then, with its keys.
func (f *fastPath) Taken() <-chan struct{} { return f.serves }

// hasBegun tells whether Serve was called before.
func (f *fastPath) hasBegun() bool {
	select {
	case <-f.serves:
		return true
	default:
		return false
	}
}

// restore writes again what another configuration may have changed before it failed.
func (f *fastPath) restore() {
	f.gate.rewrite()
	if f.plane == nil {
		return
	}
	if err := f.loadKeys(clock()); err != nil {
		log.Error("Fast path did not take its keys back", "err", err)
	}
}

// Serve implements stage.Prepared. After it has returned, the fast path goes on with the last state.
func (f *fastPath) Serve(parent context.Context, ready func()) (err error) {
	defer log.Flush()
	defer log.HandlePanic()
	defer func() {
		f.failed.Store(err != nil)
		if !succeeded(parent) {
			env.LogAppStopped(serviceName, f.router.ID())
		}
	}()
	if f.plane == nil {
		ready()
		return f.serveSlow(parent)
	}
	newPlane := f.former == nil || !sameProgram(f.former.inst, f.inst)
	adopted := f.plane.Adopted() || f.former != nil
	if again := f.hasBegun(); f.begin() || newPlane && !again {
		f.journal.start()
	}
	var extra stats.Group
	if f.metrics != nil {
		extra = append(extra, f.metrics)
	}
	if source, ok := f.plane.(stats.PortSource); ok {
		extra = append(extra, stats.NewCollector(source))
	}
	defer f.turns.End()
	mirror := newBFDMirror(f.router, f.slow.connector, adopted, f.plane.SetLinkUp)
	mirror.turns = f.turns
	mirror.mirrorSessions(f.slow.gates, f.plane.SetLinkBFD)
	mirror.follow(f.mirror)
	f.mirror = mirror
	g, ctx := errgroup.WithContext(parent)
	g.Go(func() error { mirror.run(ctx); return nil })
	g.Go(func() error { every(ctx, portsPeriod, func() { f.followPorts(f.hosts) }); return nil })
	g.Go(func() error { f.slow.guard.watch(ctx, f.gate); return nil })
	g.Go(func() error { f.journal.run(ctx); return nil })
	g.Go(func() error { return f.followKeys(ctx) })
	g.Go(func() error { every(ctx, sweepPeriod, func() { f.hosts.sweep(time.Now()) }); return nil })
	g.Go(func() error { return f.plane.WantedHosts(ctx, func(a netip.Addr) { f.hosts.want(a, time.Now()) }) })
	g.Go(func() error { return f.slow.Serve(ctx, f.plane, extra) })
	ready()
	if err := g.Wait(); parent.Err() == nil || !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Alive implements stage.Watched.
func (f *fastPath) Alive() error { return pulse.Alive(f.turns, f.slow.turns) }

// turnsWithin bounds the turns of the router's loops, which come several times a second.
const turnsWithin = 20 * time.Second

// Settle implements stage.Prepared.
func (f *fastPath) Settle(context.Context) error { return nil }

// Close implements stage.Prepared. What another one has taken over goes on.
func (f *fastPath) Close() error {
	if f.cancel != nil {
		f.cancel()
	}
	if f.resolver != nil {
		f.resolver.Wait()
	}
	if f.slow != nil {
		f.slow.Close()
	}
	if f.lock != nil && f.lock.holders.Drop() {
		return f.lock.lock.Release()
	}
	return nil
}

// resolverOptions report destinations that only the kernel can reach, which differ from those that cannot be resolved.
func resolverOptions(generic bool) nexthop.Options {
	errors := &limitedLog{}
	return nexthop.Options{Kernel: true, Generic: generic, OnError: func(err error) { errors.log("Following neighbors", "err", err) }}
}

// followLinks loads the key and starts following the far ends of all links.
func (f *fastPath) followLinks(t tracker) (*hostTable, error) {
	for _, name := range f.interfaces {
		intf, err := net.InterfaceByName(name)
		if err != nil {
			return nil, fmt.Errorf("looking up interface %s: %w", name, err)
		}
		f.ports.add(intf.Index)
	}
	// The rules come before the key: with a key the programs begin to forward.
	if err := f.gate.addSink(f.plane); err != nil {
		return nil, err
	}
	if err := f.loadKeys(clock()); err != nil {
		return nil, err
	}
	for i, link := range f.router.Datapath.Links {
		if link.Scope != scionplane.ScopeInternal {
			t.Track(link.Remote.Addr(), link.Local.Addr(), func(nh nexthop.NextHop) { f.linkFound(i, nh) })
		}
	}
	hosts := newHostTable(f.router.Datapath.Links[0].Local.Addr(), t, f.plane, f.ports.attached)
	known, err := f.plane.Hosts()
	if err != nil {
		return nil, err
	}
	for addr := range known {
		hosts.adopt(addr, time.Now())
	}
	return hosts, nil
}

// loadKeys loads the keys that are valid at a time.
func (f *fastPath) loadKeys(now time.Time) error {
	keys := f.router.Keys
	if !f.router.Scheduled() {
		return f.plane.SetOwnKey(keys[0].Secret)
	}
	if err := f.plane.ScheduleKeys(keys, now); err != nil {
		return err
	}
	current := max(keyring.Current(keyring.Spans(keys), now), 0)
	return f.plane.SetSlowPathKey(keys[current].Secret)
}

// portsPeriod is how often followPorts is called.
const portsPeriod = time.Second

// linkFound handles a report about the next hop of a link.
func (f *fastPath) linkFound(link int, nh nexthop.NextHop) {
	f.linkMu.Lock()
	defer f.linkMu.Unlock()
	f.found[link] = nh
	f.passLink(link)
}

// passLink writes the last next hop of a link to the fast path. The caller holds linkMu.
func (f *fastPath) passLink(link int) {
	nh, name := f.found[link], f.router.Datapath.Links[link].Name
	if nh.Resolved() && !f.ports.attached(nh.IfIndex) {
		log.Info("Link leaves by an interface without fast path", "link", name, "ifindex", nh.IfIndex)
		nh = nexthop.NextHop{}
	}
	log.Debug("Next hop", "link", name, "ifindex", nh.IfIndex, "mac", net.HardwareAddr(nh.DstMAC[:]))
	if err := f.plane.SetLinkNextHop(link, NextHop(nh)); err != nil {
		log.Error("Fast path did not take a next hop", "link", name, "err", err)
		return
	}
	f.journal.nextHop(link, nh.Resolved())
}
