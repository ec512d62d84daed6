// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"culvert/internal/datapath"
	"culvert/internal/httpserve"
	"culvert/internal/stage"
	"culvert/internal/stats"
)

// serve keeps the data plane, its interfaces and all stages in step with the host until ctx ends, the data plane is detached,
// or no stage is left that needs the process.
func (u *up) serve(ctx context.Context, listener net.Listener, log *slog.Logger) error {
	parent := ctx
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var work sync.WaitGroup
	start := func(do func(context.Context) error) {
		work.Go(func() {
			if err := do(ctx); ctx.Err() == nil {
				end(err)
			}
		})
	}
	if u.inst != nil {
		start(func(ctx context.Context) error { return refresh(ctx, u.inst, log) })
		start(func(ctx context.Context) error { return followPorts(ctx, u.follower(log)) })
	}
	if listener != nil {
		start(func(ctx context.Context) error { return serveMetrics(ctx, listener, u.inst) })
	}
	start(func(ctx context.Context) error { return u.serveStages(ctx, log) })
	<-ctx.Done()
	work.Wait()
	if parent.Err() != nil {
		u.logStays(log)
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, errDetached) {
		return err
	}
	return nil
}

// logStays logs that the data plane stays when the process is asked to end.
func (u *up) logStays(log *slog.Logger) {
	if u.inst == nil || u.inst.Removed() {
		return
	}
	if on := u.inst.AttachedNow(); len(on) > 0 {
		log.Info("the process ends, and the data plane stays: packets go on by it, and the next process takes it over",
			"interfaces", on, "off", "culvert detach "+strings.Join(on, " "))
	}
}

// serveStages serves all stages. If Serve of a stage returns an error, the others go on. serveStages returns when ctx ends, or
// with the last error once no stage is left that needs the process.
func (u *up) serveStages(ctx context.Context, log *slog.Logger) error {
	states := newStages(u, log)
	defer states.close()
	type result struct {
		stage stage.Prepared
		err   error
	}
	results := make(chan result)
	for _, p := range u.prepared {
		go func() {
			err := p.Serve(ctx, func() { states.set(p.Name(), datapath.StageReady, nil) })
			results <- result{p, err}
		}()
	}
	var failed error
	for range u.prepared {
		r := <-results
		switch {
		case ctx.Err() != nil:
		case r.err == nil: // it needs no process
			states.set(r.stage.Name(), datapath.StageReady, nil)
		default:
			failed = r.err
			states.set(r.stage.Name(), datapath.StageOut, r.err)
			log.Error("a stage is out: its packets go to the kernel, or where they went before; start the process again",
				"stage", r.stage.Name(), "err", r.err)
		}
	}
	if failed != nil {
		return failed
	}
	<-ctx.Done()
	return ctx.Err()
}

// refreshPeriod is how often the state of interfaces is read that changes without a notification.
const refreshPeriod = time.Second

// refresh refreshes an instance until ctx ends. It logs an error unless it equals the one before.
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

// serveMetrics serves the counters of an instance at /metrics until ctx ends.
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

// follower returns the follower of the data plane with the settings of the file.
func (u *up) follower(log *slog.Logger) *follower {
	f := &follower{inst: u.inst, log: log, detached: u.file.Node.Detached}
	f.restore = func() (err error) {
		for _, p := range u.prepared {
			if r, ok := p.(stage.Restorer); ok {
				err = errors.Join(err, r.Restore(u.inst))
			}
		}
		return err
	}
	f.checkPort = func(name string) error {
		for _, p := range u.plans {
			if c, ok := p.(stage.PortChecker); ok {
				if err := c.CheckPort(name); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return f
}
