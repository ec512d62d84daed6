// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/httpserve"
	"culvert/internal/route"
	"culvert/internal/stats"
)

func routeOptions(n *config.Node) *datapath.RouteOptions {
	if n.Route == nil {
		return nil
	}
	o := &datapath.RouteOptions{NoMirror: !n.Route.MirrorOn()}
	if n.Route.Blocks4 != nil {
		o.Blocks4 = *n.Route.Blocks4
	}
	if n.Route.Blocks6 != nil {
		o.Blocks6 = *n.Route.Blocks6
	}
	return o
}

func logger() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stderr, nil)) }

// checkRoute refuses what would make the IP router do otherwise than the kernel, as far as the interfaces are known.
func checkRoute(n *config.Node, interfaces []string) error {
	if err := checkNetfilter(n, interfaces); err != nil {
		return err
	}
	return checkTags(present(interfaces, n.Missing == config.MissingWait))
}

// runAlone is Run without a SCION router.
func runAlone(ctx context.Context, n *config.Node, wanted *wantedFilter, balanced *wantedBalance) error {
	o := options(n)
	o.Name, o.Interfaces = n.Name, n.Interfaces
	balanced, err := complete(&o, wanted, balanced)
	if err != nil {
		return err
	}
	var listener net.Listener
	if n.Metrics != "" {
		if listener, err = net.Listen("tcp", n.Metrics); err != nil {
			if served(n.Name) { // it has the address: the first thing to know
				return fmt.Errorf("router %s is served by another process: stop that one first", n.Name)
			}
			return fmt.Errorf("serving metrics on %s: %w", n.Metrics, err)
		}
		defer listener.Close()
	}
	inst, err := datapath.Attach(o, datapath.Config{})
	if err != nil {
		return err
	}
	defer inst.Close()
	log := logger()
	log.Info("attached", "name", n.Name, "interfaces", inst.Attached(), "adopted", inst.Adopted())
	g, ctx := errgroup.WithContext(ctx)
	if n.Route != nil {
		g.Go(func() error { return serveRoute(ctx, n, inst, log) })
	}
	if balanced != nil {
		g.Go(func() error { return balanced.serve(ctx, inst, log) })
	}
	g.Go(func() error { return refresh(ctx, inst, log) })
	g.Go(func() error { return followPorts(ctx, newFollower(n, wanted, inst, log)) })
	if listener != nil {
		g.Go(func() error { return serveMetrics(ctx, listener, inst) })
	}
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, errDetached) {
		return err
	}
	return nil
}

// served tells whether another process keeps the data plane of that name here.
func served(name string) bool {
	inst, err := datapath.OpenHere(name)
	if inst == nil || err != nil {
		return false
	}
	defer inst.Close()
	return inst.Served()
}

// beside starts the other stages' work for a data plane that the SCION router runs. End is called when the process is to
// end.
func beside(ctx context.Context, end context.CancelCauseFunc, n *config.Node, wanted *wantedFilter, balanced *wantedBalance) func(*datapath.Instance) (stop func()) {
	return func(inst *datapath.Instance) func() {
		ctx, cancel := context.WithCancel(ctx)
		var done sync.WaitGroup
		log := logger()
		if n.Route != nil {
			done.Go(func() {
				if err := serveRoute(ctx, n, inst, log); err != nil && ctx.Err() == nil {
					log.Error("the mirror of the routing tables has ended: the kernel forwards all packets", "err", err)
				}
			})
		}
		if balanced != nil {
			done.Go(func() {
				err := balanced.serve(ctx, inst, log)
				if err != nil && ctx.Err() == nil {
					log.Error("nobody follows the load balancer's backends any more", "err", err)
				}
			})
		}
		done.Go(func() {
			if err := followPorts(ctx, newFollower(n, wanted, inst, log)); ctx.Err() == nil {
				end(err)
			}
		})
		return func() { cancel(); done.Wait() }
	}
}

// serveRoute keeps the IP router in step with the kernel until ctx ends.
func serveRoute(ctx context.Context, n *config.Node, inst *datapath.Instance, log *slog.Logger) error {
	guard := &guardedPlane{Instance: inst}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return route.Run(ctx, route.Options{Plane: guard, Log: log}) })
	if !n.Route.BypassNetfilter {
		g.Go(func() error { return guard.watch(ctx, log) })
	}
	g.Go(func() error { return watchForwarding(ctx, inst.AttachedNow, log) })
	err := g.Wait()
	if err != nil && !errors.Is(err, context.Canceled) {
		err = errors.Join(err, guard.guard(true)) // nobody follows what the host does
	}
	return err
}

// refreshPeriod is how often interfaces are looked at for what nobody tells of.
const refreshPeriod = time.Second

func refresh(ctx context.Context, inst *datapath.Instance, log *slog.Logger) error {
	tick := time.NewTicker(refreshPeriod)
	defer tick.Stop()
	failed := ""
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		err := inst.Refresh()
		if err != nil && err.Error() != failed {
			failed = err.Error()
			log.Error("the fast path does not follow the host", "err", err)
		}
	}
}

func serveMetrics(ctx context.Context, listener net.Listener, inst *datapath.Instance) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(stats.NewCollector(inst))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	if err := httpserve.Serve(ctx, listener, mux, "metrics"); err != nil {
		return err
	}
	return ctx.Err()
}

// syncWait bounds how long Attach waits for devices and tables to be read.
const syncWait = 30 * time.Second

// attachRoute is Attach with the IP router. Without a process there is no mirror: the kernel is asked for
// each packet, and what devices and sysctls were like stays what the data plane knows.
func attachRoute(ctx context.Context, n *config.Node, wanted *wantedFilter, balanced *wantedBalance, path string, interfaces []string, out io.Writer) error {
	if n.SCION != nil {
		return fmt.Errorf("%s has [scion] and [route]: both need the process, use culvert run -c %[1]s", path)
	}
	n.Interfaces, n.Missing = interfaces, config.MissingRefuse
	if err := checkRoute(n, interfaces); err != nil {
		return err
	}
	o := options(n)
	o.Name, o.Interfaces, o.Unattended = n.Name, interfaces, true
	o.Wait = false // nobody would attach to what comes later
	o.Route = &datapath.RouteOptions{NoMirror: true}
	balanced, err := complete(&o, wanted, balanced)
	if err != nil {
		return err
	}
	rest := o.Begin
	o.Begin = func(inst *datapath.Instance) error {
		if err := readOnce(ctx, inst); err != nil {
			return err
		}
		return rest(inst)
	}
	inst, err := datapath.Attach(o, datapath.Config{})
	if err != nil {
		return err
	}
	defer inst.Close()
	tellAttached(inst, n.Name, out)
	return balanced.settle(ctx, inst, out)
}

// readOnce tells a data plane what devices and routes of this host are like now.
func readOnce(ctx context.Context, inst *datapath.Instance) error {
	ctx, cancel := context.WithTimeout(ctx, syncWait)
	defer cancel()
	synced := false
	err := route.Run(ctx, route.Options{Plane: inst, OnSynced: func() { synced = true; cancel() }})
	if synced {
		return nil
	}
	if err == nil {
		err = ctx.Err()
	}
	return fmt.Errorf("reading devices and routes of this host: %w", err)
}
