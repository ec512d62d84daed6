// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/api"
	"culvert/internal/datapath"
	"culvert/internal/httpserve"
	"culvert/internal/stats"
	"culvert/internal/version"
)

// exported has the metrics of the process itself.
type exported struct {
	stats.Group
	// reload tells how the last reload of the configuration went, and web whether the page to look at is there.
	reload *stats.Reload
	web    *stats.Web
	// cluster tells how the node stands with its cluster.
	cluster *clusterMetrics
}

func newExported() *exported {
	e := &exported{reload: stats.NewReload(), web: new(stats.Web), cluster: new(clusterMetrics)}
	e.Group = stats.Group{stats.NewBuildInfo(version.Short(), version.Revision(), runtime.Version()), e.reload, e.web, e.cluster}
	return e
}

// metricsServer serves the counters of the instance at /metrics, at an address that may change. A SCION router serves its own.
type metricsServer struct {
	httpserve.Place
	// process has the metrics of the process itself. logError logs what cannot be read.
	process  prometheus.Collector
	logError func(message string, fields ...any)
	handler  atomic.Pointer[http.Handler]
}

// newMetrics returns a server of metrics that serves nowhere yet. failed gets the error with which serving has ended.
func newMetrics(process prometheus.Collector, failed func(error), logError func(message string, fields ...any)) *metricsServer {
	m := &metricsServer{process: process, logError: logError}
	mux := http.NewServeMux()
	mux.Handle(api.MetricsPath, m)
	m.Place = httpserve.Place{Failed: failed, Serve: func(ctx context.Context, l net.Listener) error {
		return httpserve.Serve(ctx, l, mux, "metrics")
	}}
	return m
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
