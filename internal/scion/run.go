// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/scionproto/scion/pkg/log"
	"github.com/scionproto/scion/pkg/private/prom"
	"github.com/scionproto/scion/private/env"
	"golang.org/x/sync/errgroup"

	"culvert/internal/datapath"
	"culvert/internal/host/nexthop"
	"culvert/internal/version"
)

// serviceName is what the reference router calls itself in its log.
const serviceName = "SCION Router"

// Run runs the border router that the TOML file at path describes until ctx ends. Everything is
// read, checked and opened before the fast path is attached. When Run returns the fast path stays
// attached and goes on with what it knows, unless starting failed and it was not there before.
func Run(ctx context.Context, path string, deps Deps) error {
	signal.Ignore(syscall.SIGHUP) // as the reference does
	r, err := Load(path)
	if err != nil {
		return err
	}
	r.Datapath.BFDMinTTL = deps.BFDMinTTL
	interfaces, err := r.Interfaces()
	if err != nil {
		return err
	}
	if len(deps.Interfaces) > 0 {
		if err := r.CheckInterfaces(deps.Interfaces); err != nil {
			return err
		}
		interfaces = deps.Interfaces
	}
	lock, err := takePlace(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release() }()
	if err := startLog(r); err != nil {
		return err
	}
	defer log.Flush()
	defer log.HandlePanic()
	env.StartupVersion = version.WithSCION()
	exportIdentity(r.ID())

	slow, err := NewSlowPath(r)
	if err != nil {
		return err
	}
	defer slow.Close()
	slow.debugHTTP = deps.DebugHTTP
	gate := newGate(r, deps.LooseLinks, log.Info, log.Error)
	if len(interfaces) == 0 {
		return runSlow(ctx, slow, gate)
	}
	f := &fastPath{router: r, slow: slow, interfaces: interfaces, gate: gate, found: make(map[int]nexthop.NextHop)}
	return f.run(ctx, deps)
}

func newResolver(ctx context.Context) (*nexthop.Resolver, error) {
	return nexthop.New(ctx, resolverOptions())
}

// runSlow serves without a fast path until ctx ends.
func runSlow(parent context.Context, slow *SlowPath, gate *gate) error {
	ctx, cancel := context.WithCancel(parent)
	resolver, err := newResolver(ctx)
	if err != nil {
		cancel()
		return err
	}
	defer resolver.Wait()
	defer cancel()
	if err := slow.guard.follow(ctx, gate, resolver); err != nil {
		return err
	}
	logStart(slow.router)
	defer env.LogAppStopped(serviceName, slow.router.ID())
	gate.openLog()
	log.Info("All underlay addresses are on loopback: every packet takes the slow path")
	go slow.guard.watch(ctx, gate)
	return slow.Serve(ctx, nil, nil)
}

// startLog sets logging up as the reference does.
func startLog(r *Router) error {
	console := r.Config.Logging.Console
	// The reference reads these three and no other setting of the section.
	console.DisableCaller = false
	if err := log.Setup(log.Config{Console: console}); err != nil {
		return badField(r.Path)("log.console", "%s", oneLine(err))
	}
	return nil
}

// logStart writes the reference's first log entry. It comes after everything that can fail on
// start, so that such a failure is one line.
func logStart(r *Router) { _ = env.LogAppStarted(serviceName, r.ID()) }

var identity sync.Once

// exportIdentity exports the metrics that tell one SCION process from another.
func exportIdentity(id string) {
	identity.Do(func() {
		promauto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "scion_build_info",
			Help: "SCION build information",
		}, []string{"version"}).WithLabelValues(env.StartupVersion).Set(1)
		prom.ExportElementID(id)
	})
}

// fastPath keeps an attached data plane in step with keys, neighbours and BFD.
type fastPath struct {
	router     *Router
	slow       *SlowPath
	interfaces []string
	plane      DataPlane
	journal    *journal
	gate       *gate
	ports      ports
	linkMu     sync.Mutex
	found      map[int]nexthop.NextHop // of links, behind whatever device
}

func (f *fastPath) run(parent context.Context, deps Deps) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	resolver, err := newResolver(ctx)
	if err != nil {
		return err
	}
	if err := f.slow.guard.follow(ctx, f.gate, resolver); err != nil {
		return err
	}
	if f.plane, err = deps.Attach(f.router, f.interfaces); err != nil {
		return err
	}
	defer func() {
		cancel()
		resolver.Wait()
		if err := f.plane.Close(); err != nil {
			log.Error("Closing the fast path", "err", err)
		}
	}()
	f.journal = newJournal(f.router, f.plane)
	hosts, err := f.prepare(resolverTracker{resolver})
	if err != nil {
		if !f.plane.Adopted() {
			if failed := f.plane.Detach(); failed != nil {
				err = fmt.Errorf("%w; detaching again failed too: %w", err, failed)
			}
		}
		return err
	}
	logStart(f.router)
	defer env.LogAppStopped(serviceName, f.router.ID())
	f.gate.openLog()
	f.journal.start()
	var extra prometheus.Collector
	if deps.Collector != nil {
		extra = deps.Collector(f.plane)
	}
	mirror := newBFDMirror(f.router, f.slow.connector, f.plane.Adopted(), f.plane.SetLinkUp)
	mirror.watch(f.slow.gates, f.plane.SetLinkBFD)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { mirror.run(ctx); return nil })
	g.Go(func() error { f.refresh(ctx, hosts); return nil })
	g.Go(func() error { f.slow.guard.watch(ctx, f.gate); return nil })
	g.Go(func() error { f.journal.run(ctx); return nil })
	g.Go(func() error { every(ctx, sweepPeriod, func() { hosts.sweep(time.Now()) }); return nil })
	g.Go(func() error { return f.plane.WantedHosts(ctx, func(a netip.Addr) { hosts.want(a, time.Now()) }) })
	g.Go(func() error { return f.slow.Serve(ctx, f.plane, extra) })
	if err := g.Wait(); parent.Err() == nil || !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// resolverOptions are for those who tell hosts that only the kernel reaches from those that nobody has found.
func resolverOptions() nexthop.Options {
	errors := &sparing{}
	return nexthop.Options{Kernel: true, OnError: func(err error) { errors.log("Following neighbours", "err", err) }}
}

// prepare loads the key and starts following the far ends of all links.
func (f *fastPath) prepare(t tracker) (*hostTable, error) {
	for _, name := range f.interfaces {
		intf, err := net.InterfaceByName(name)
		if err != nil {
			return nil, fmt.Errorf("looking up interface %s: %w", name, err)
		}
		f.ports.add(intf.Index)
	}
	// Before there is a key, with which packets may be forwarded.
	if err := f.gate.add(f.plane); err != nil {
		return nil, err
	}
	if err := f.plane.SetOwnKey(*f.router.Key); err != nil {
		return nil, err
	}
	for i, link := range f.router.Datapath.Links {
		if link.Scope != datapath.ScopeInternal {
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

// refreshPeriod is how often the host is looked at for what nobody tells of: the offset of
// CLOCK_TAI, which changes when a time service starts and with a leap second, and the addresses of
// interfaces.
const refreshPeriod = time.Second

func (f *fastPath) refresh(ctx context.Context, hosts *hostTable) {
	every(ctx, refreshPeriod, func() {
		f.followPorts(hosts)
		if err := f.plane.Refresh(); err != nil {
			log.Error("Fast path does not follow the host", "err", err)
		}
	})
}

func (f *fastPath) linkFound(link int, nh nexthop.NextHop) {
	f.linkMu.Lock()
	defer f.linkMu.Unlock()
	f.found[link] = nh
	f.passLink(link)
}

// passLink tells the fast path what was found last of a link; the caller holds the lock.
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
