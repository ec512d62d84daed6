// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/scionproto/scion/pkg/log"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"culvert/internal/host/pulse"
	"culvert/internal/httpserve"
	"culvert/internal/scion/handover"
	"culvert/internal/scion/scionplane"
	"culvert/internal/stage"
	"culvert/internal/stats"
)

// counterPeriod is how often the fast path's counters are added to the metrics between two scrapes.
const counterPeriod = time.Second

// SlowPath is the reference router's data plane in this process, with its HTTP endpoints. It owns
// the UDP sockets and answers every packet that the fast path passes up.
type SlowPath struct {
	*core
	router *Router
	// former is the slow path that this one follows, nil for none.
	former *SlowPath
	// debugHTTP lets HTTP serve the profiler and change the log level.
	debugHTTP bool
	// metrics and api serve HTTP. They are nil if the TOML file sets no address for them.
	metrics, api *handover.Endpoint
	// counted has those of the fast path's counts that are in the metrics, by the names of links.
	counted map[string]stats.LinkCounters
	turns   *pulse.Pulse // of the loop that looks after BFD
}

// NewSlowPath opens the router's UDP and HTTP sockets in the current network namespace and
// configures the data plane. Packets wait in the sockets until Serve.
func NewSlowPath(r *Router) (*SlowPath, error) { return newSlowPath(r, nil, false) }

// newSlowPath is NewSlowPath for a slow path that follows another one, which goes on until Serve. With same set the former's data
// plane is what r asks for, and goes on after that, too.
func newSlowPath(r *Router, former *SlowPath, same bool) (_ *SlowPath, err error) {
	s := &SlowPath{router: r, former: former, turns: pulse.New("the loop of the slow path", turnsWithin)}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.metrics, err = s.listen(fieldMetrics, r.Config.Metrics.Prometheus); err != nil {
		return nil, err
	}
	if s.api, err = s.listen(fieldAPI, r.Config.API.Addr); err != nil {
		return nil, err
	}
	switch {
	case former == nil:
		s.core, err = newCore(r, nil)
	case same:
		s.core = former.core.hold()
	default:
		s.core, err = newCore(r, former.core)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// socketError turns an error about opening a link's socket into one about the link's field in the topology. The library
// names the socket only in the text of the error.
func socketError(r *Router, err error) error {
	text := oneLine(err)
	for i, l := range r.Datapath.Links {
		if !strings.Contains(text, "listen="+l.Local.String()) ||
			l.Scope == scionplane.ScopeExternal && !strings.Contains(text, l.Remote.String()) {
			continue
		}
		bad := badField(r.TopologyPath())
		switch {
		case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
			return bad(r.fields[i], "no route from %s to %s: see 'ip route get %[2]s'",
				l.Local.Addr(), l.Remote.Addr())
		case errors.Is(err, unix.EADDRINUSE):
			return bad(r.fields[i], "%s is in use: stop the process that has it ('ss -ulpn')", l.Local)
		}
	}
	return fmt.Errorf("opening the sockets of router %s: %s", r.ID(), text)
}

// listen listens on a TCP address of the TOML file, or takes over the listener of the former slow path. It returns nil if the
// address is not set.
func (s *SlowPath) listen(field, address string) (*handover.Endpoint, error) {
	if address == "" {
		return nil, nil
	}
	var own []net.Listener
	if s.former != nil {
		for _, e := range s.former.endpoints() {
			if e.Address == address && e.Open() {
				e.Hold()
				return e, nil
			}
			own = append(own, e.Listener())
		}
	}
	l, err := httpserve.Bind(address, own...)
	if err != nil {
		if errors.Is(err, unix.EADDRINUSE) {
			return nil, badField(s.router.Path)(field, "%w: stop the process that has it ('ss -tlnp') or write another port", err)
		}
		return nil, badField(s.router.Path)(field, "%w", err)
	}
	return handover.NewEndpoint(address, l), nil
}

// endpoints returns the endpoints that there are.
func (s *SlowPath) endpoints() (all []*handover.Endpoint) {
	for _, e := range []*handover.Endpoint{s.metrics, s.api} {
		if e != nil {
			all = append(all, e)
		}
	}
	return all
}

// httpAddresses returns the addresses that the router serves by HTTP, by their fields in the TOML file.
func (r *Router) httpAddresses() map[string]string {
	return map[string]string{fieldMetrics: r.Config.Metrics.Prometheus, fieldAPI: r.Config.API.Addr}
}

// Fields of the TOML file.
const (
	fieldMetrics = "metrics.prometheus"
	fieldAPI     = "api.addr"
)

// Close closes what no slow path that follows has taken over. Packets on their way are still sent.
func (s *SlowPath) Close() {
	for _, e := range s.endpoints() {
		e.Drop()
	}
	if s.core != nil {
		s.core.drop()
	}
}

// Serve processes packets and answers HTTP until ctx ends. The counters of fast, if it is not nil, are added to the
// reference's metrics, and the metrics of extra, if it is not nil, are exported too. The data plane runs until Close. If another
// slow path takes over (stage.ErrSucceeded), HTTP goes on with that one.
func (s *SlowPath) Serve(parent context.Context, fast FastPathCounters, extra prometheus.Collector) error {
	s.begin()
	update := func() {}
	g, ctx := errgroup.WithContext(parent)
	if fast != nil {
		sync, err := newCounterSync(s.router, s.connector.DataPlane.Metrics, fast, s.counted)
		if err != nil {
			return err
		}
		update = func() {
			if err := sync.sync(); err != nil {
				log.Error("Fast path missing from the metrics", "err", err)
			}
		}
		g.Go(func() error { every(ctx, counterPeriod, update); return nil })
		defer func() {
			if succeeded(parent) {
				update()
			}
			s.counted = sync.counted(s.router)
		}()
	}
	var collectors []prometheus.Collector
	if s.guard.filter != nil {
		collectors = append(collectors, s.guard)
	}
	watch := newBFDWatch(s.gates, fast)
	collectors = append(collectors, watch, s.underlay.sizes)
	if extra != nil {
		collectors = append(collectors, extra)
	}
	for _, c := range collectors {
		if err := prometheus.Register(c); err != nil {
			return fmt.Errorf("registering the metrics of the slow path: %w", err)
		}
		defer prometheus.Unregister(c)
	}
	defer s.turns.End()
	g.Go(func() error {
		every(ctx, bfdWatchPeriod, func() { watch.look(time.Now()); s.underlay.sizes.Look(time.Now(), log.Info); s.turns.Beat() })
		return nil
	})
	if stray := newPortWatch(fast); stray != nil {
		g.Go(func() error {
			every(ctx, gatePeriod, func() { stray.look(time.Now()) })
			stray.look(time.Now()) // logs what was dropped since the last tick
			return nil
		})
	}
	serve := func(e *handover.Endpoint, h http.Handler, what string) {
		g.Go(func() error {
			defer log.HandlePanic()
			return e.Serve(ctx, h, what, func() bool { return succeeded(parent) })
		})
	}
	if s.metrics != nil {
		handler, err := s.statusHandler(update)
		if err != nil {
			return err
		}
		if !s.metrics.Started() {
			log.Info("Exporting prometheus metrics", "addr", s.metrics.Address)
		}
		serve(s.metrics, handler, "metrics")
	}
	if s.api != nil {
		if !s.api.Started() {
			log.Info("Exposing API", "addr", s.api.Address)
		}
		serve(s.api, s.apiHandler(), "service management API")
	}
	g.Go(func() error { <-ctx.Done(); return nil })
	return g.Wait()
}

// begin runs the data plane, and takes over from the former slow path.
func (s *SlowPath) begin() {
	s.core.begin()
	if s.former != nil {
		s.counted, s.former = s.former.counted, nil
	}
}

// succeeded tells whether the work goes on in another Serve.
func succeeded(ctx context.Context) bool { return errors.Is(context.Cause(ctx), stage.ErrSucceeded) }

// every calls fn at each period until ctx ends.
func every(ctx context.Context, period time.Duration, fn func()) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			fn()
		}
	}
}
