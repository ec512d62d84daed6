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
	scionrouter "github.com/scionproto/scion/router"
	"github.com/scionproto/scion/router/control"
	// The reference data plane finds its UDP/IP underlay by registration.
	_ "github.com/scionproto/scion/router/underlayproviders/udpip"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"culvert/internal/httpserve"
	"culvert/internal/scion/scionplane"
)

// counterPeriod is how often the fast path's counters are added to the metrics between two scrapes.
const counterPeriod = time.Second

// SlowPath is the reference router's data plane in this process, with its HTTP endpoints. It owns
// the UDP sockets and answers every packet that the fast path passes up.
type SlowPath struct {
	router    *Router
	connector *scionrouter.Connector
	// debugHTTP lets HTTP serve the profiler and change the log level.
	debugHTTP bool
	// gates has the gate of each link that BFD watches.
	gates map[int]*bfdGate
	// metrics and api are the listeners for HTTP, nil if the TOML file sets no address for them.
	metrics, api net.Listener
	guard        *linkGuard
}

// NewSlowPath opens the router's UDP and HTTP sockets in the current network namespace and
// configures the data plane. Packets wait in the sockets until Serve.
func NewSlowPath(r *Router) (*SlowPath, error) {
	if r.Key == nil {
		return nil, errors.New("the slow path needs the AS master keys: put master0.key and master1.key into keys/")
	}
	s := &SlowPath{router: r}
	var err error
	if s.metrics, err = listen(r, fieldMetrics, r.Config.Metrics.Prometheus); err != nil {
		return nil, err
	}
	if s.api, err = listen(r, fieldAPI, r.Config.API.Addr); err != nil {
		s.closeListeners()
		return nil, err
	}
	s.connector = scionrouter.NewConnector(r.Config.Router, r.Config.Features)
	if s.gates, err = gateSessions(s.connector, r); err != nil {
		s.closeListeners()
		return nil, err
	}
	// IACtx.Configure does the same, but its error contains a dump of the configuration.
	if err := control.ConfigDataplane(s.connector, r.Control); err != nil {
		s.closeListeners()
		return nil, socketError(r, err)
	}
	if s.guard, err = guardLinks(r); err != nil {
		s.closeListeners()
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

// listen listens on a TCP address of the TOML file. It returns nil if the address is not set.
func listen(r *Router, field, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		if errors.Is(err, unix.EADDRINUSE) {
			return nil, badField(r.Path)(field, "%w: stop the process that has it ('ss -tlnp') or write another port", err)
		}
		return nil, badField(r.Path)(field, "%w", err)
	}
	return l, nil
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

func (s *SlowPath) closeListeners() {
	for _, l := range []net.Listener{s.metrics, s.api} {
		if l != nil {
			_ = l.Close()
		}
	}
}

// Close closes the HTTP sockets of a slow path that is not served. The UDP sockets stay open until the process ends: the
// library can close only those of a data plane that has run.
func (s *SlowPath) Close() { s.closeListeners() }

// Serve processes packets and answers HTTP until ctx ends. The counters of fast, if it is not nil, are added to the
// reference's metrics, and the metrics of extra, if it is not nil, are exported too. The UDP sockets stay open until the
// process ends, so that the reference's senders never send to a closed queue.
func (s *SlowPath) Serve(ctx context.Context, fast FastPathCounters, extra prometheus.Collector) error {
	defer s.closeListeners()
	update := func() {}
	g, ctx := errgroup.WithContext(ctx)
	if fast != nil {
		sync, err := newCounterSync(s.router, s.connector.DataPlane.Metrics, fast)
		if err != nil {
			return err
		}
		update = func() {
			if err := sync.sync(); err != nil {
				log.Error("Fast path missing from the metrics", "err", err)
			}
		}
		g.Go(func() error { every(ctx, counterPeriod, update); return nil })
	}
	if s.guard.filter != nil {
		if err := prometheus.Register(s.guard); err != nil {
			return fmt.Errorf("registering the sockets' metrics: %w", err)
		}
		defer prometheus.Unregister(s.guard)
	}
	watch := newBFDWatch(s.gates, fast)
	if err := prometheus.Register(watch); err != nil {
		return fmt.Errorf("registering the metrics of BFD: %w", err)
	}
	defer prometheus.Unregister(watch)
	g.Go(func() error { every(ctx, bfdWatchPeriod, func() { watch.look(time.Now()) }); return nil })
	if stray := newPortWatch(fast); stray != nil {
		g.Go(func() error {
			every(ctx, gatePeriod, func() { stray.look(time.Now()) })
			stray.look(time.Now()) // logs what was dropped since the last tick
			return nil
		})
	}
	if extra != nil {
		if err := prometheus.Register(extra); err != nil {
			return fmt.Errorf("registering culvert's metrics: %w", err)
		}
		defer prometheus.Unregister(extra)
	}
	if s.metrics != nil {
		handler, err := s.statusHandler(update)
		if err != nil {
			return err
		}
		log.Info("Exporting prometheus metrics", "addr", s.router.Config.Metrics.Prometheus)
		g.Go(func() error { return serveHTTP(ctx, s.metrics, handler, "metrics") })
	}
	if s.api != nil {
		log.Info("Exposing API", "addr", s.router.Config.API.Addr)
		g.Go(func() error { return serveHTTP(ctx, s.api, s.apiHandler(), "service management API") })
	}
	g.Go(func() error {
		defer log.HandlePanic()
		if err := s.connector.DataPlane.Run(ctx); err != nil {
			return fmt.Errorf("running the slow path: %s", oneLine(err))
		}
		return nil
	})
	return g.Wait()
}

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

// serveHTTP serves until ctx ends.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler, what string) error {
	defer log.HandlePanic()
	return httpserve.Serve(ctx, l, h, what)
}
