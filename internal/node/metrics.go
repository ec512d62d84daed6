// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/httpserve"
	"culvert/internal/stats"
	"culvert/internal/version"
)

// exported has the metrics of the process itself.
type exported struct {
	stats.Group
	// reload tells how the last reload of the configuration went.
	reload *stats.Reload
}

func newExported() *exported {
	e := &exported{reload: stats.NewReload()}
	e.Group = stats.Group{stats.NewBuildInfo(version.Short(), version.Revision(), runtime.Version()), e.reload}
	return e
}

// metricsServer serves the counters of the instance at /metrics, at an address that may change. A SCION router serves its own.
type metricsServer struct {
	// failed gets the error with which serving has ended.
	failed func(error)
	// process has the metrics of the process itself. logError logs what cannot be read.
	process  prometheus.Collector
	logError func(message string, fields ...any)
	// address is where they are served, "" for nowhere, and listener what listens there.
	address  string
	listener net.Listener
	handler  atomic.Pointer[http.Handler]
	stop     context.CancelFunc
	work     sync.WaitGroup
}

// show has the server show an instance, nil for none, from now on.
func (m *metricsServer) show(inst *datapath.Instance) {
	all := []prometheus.Collector{m.process}
	if inst != nil {
		all = append(all, stats.NewCollector(inst))
	}
	h := stats.Handler(m.logError, all...)
	m.handler.Store(&h)
}

// ServeHTTP implements http.Handler.
func (m *metricsServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*m.handler.Load()).ServeHTTP(w, r)
}

// listen opens a listener at another address, nil if the address is the same or there is none. It may overlap with the address
// before.
func (m *metricsServer) listen(n *config.Node) (net.Listener, error) {
	if n.Metrics == m.address || n.Metrics == "" {
		return nil, nil
	}
	l, err := httpserve.Listen(n.Metrics, m.listener)
	if err != nil {
		return nil, n.Locate("metrics", fmt.Errorf("serving metrics on %s: %w", n.Metrics, err))
	}
	return l, nil
}

// move serves at an address from now on, by a listener from listen.
func (m *metricsServer) move(address string, l net.Listener) {
	if address == m.address {
		return
	}
	m.close()
	m.address = address
	if l == nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	m.stop, m.listener = stop, l
	mux := http.NewServeMux()
	mux.Handle("/metrics", m)
	m.work.Go(func() {
		if err := httpserve.Serve(ctx, l, mux, "metrics"); err != nil {
			m.failed(err)
		}
	})
}

// close ends serving.
func (m *metricsServer) close() {
	if m.stop != nil {
		m.stop()
		m.work.Wait()
		m.stop = nil
	}
	m.address, m.listener = "", nil
}
