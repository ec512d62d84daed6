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

// serve keeps everything in step until ctx ends, the data plane is taken away, or no stage is left that could go on.
func (u *up) serve(ctx context.Context, listener net.Listener, log *slog.Logger) error {
	told := ctx
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
	if told.Err() != nil {
		u.tellStays(log)
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, errDetached) {
		return err
	}
	return nil
}

// tellStays says what a process leaves behind that was told to end.
func (u *up) tellStays(log *slog.Logger) {
	if u.inst == nil || u.inst.Removed() {
		return
	}
	if on := u.inst.AttachedNow(); len(on) > 0 {
		log.Info("the process ends, and the data plane stays: packets go on by it, and the next process takes it over",
			"interfaces", on, "off", "culvert detach "+strings.Join(on, " "))
	}
}

// serveStages has all stages serve. One that ends with an error is out, and the others go on; when none of those that need a
// process is left, its error is returned.
func (u *up) serveStages(ctx context.Context, log *slog.Logger) error {
	states := newStages(u, log)
	defer states.close()
	type ended struct {
		of  stage.Prepared
		err error
	}
	ends := make(chan ended)
	for _, p := range u.prepared {
		go func() {
			err := p.Serve(ctx, func() { states.set(p.Name(), datapath.StageReady, nil) })
			ends <- ended{p, err}
		}()
	}
	var failed error
	for range u.prepared {
		e := <-ends
		switch {
		case ctx.Err() != nil:
		case e.err == nil: // it needs no process
			states.set(e.of.Name(), datapath.StageReady, nil)
		default:
			failed = e.err
			states.set(e.of.Name(), datapath.StageOut, e.err)
			log.Error("a stage is out: its packets go to the kernel, or where they went before; start the process again",
				"stage", e.of.Name(), "err", e.err)
		}
	}
	if failed != nil {
		return failed
	}
	<-ctx.Done()
	return ctx.Err()
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

// follower keeps the data plane on its interfaces as the configuration says.
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
	f.check = func(name string) error {
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
