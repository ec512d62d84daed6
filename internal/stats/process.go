// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// Handler returns a handler that serves the metrics of all collectors, and those of the Go runtime and of the process.
func Handler(logError func(message string, fields ...any), all ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(all...)
	return promhttp.HandlerFor(registry, HandlerOptions(logError, registry))
}

// HandlerOptions returns the options of a handler that leaves out what cannot be read, logs it, and counts it in
// promhttp_metric_handler_errors_total: a stage that cannot be read hides no other one.
func HandlerOptions(logError func(message string, fields ...any), registry prometheus.Registerer) promhttp.HandlerOpts {
	return promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, ErrorLog: &errorLog{write: logError}, Registry: registry}
}

// errorQuiet is the least time between two lines of the log about metrics that cannot be read.
const errorQuiet = time.Minute

// errorLog writes errors of a handler to a log, at most one in errorQuiet.
type errorLog struct {
	write func(message string, fields ...any)
	mu    sync.Mutex
	next  time.Time
}

// foreign are what the names of metrics begin with that libraries of culvert register in every process, whether it uses them or not:
// those of an etcd within the process.
var foreign = []string{"etcd_", "os_fd_", "grpc_"}

// Own gathers what g does, without the metrics of an etcd, which no data plane has.
func Own(g prometheus.Gatherer) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all, err := g.Gather()
		return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool {
			return slices.ContainsFunc(foreign, func(prefix string) bool { return strings.HasPrefix(f.GetName(), prefix) })
		}), err
	})
}

// Println implements promhttp.Logger.
func (l *errorLog) Println(what ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); !now.Before(l.next) {
		l.next = now.Add(errorQuiet)
		l.write("some metrics are missing", "err", what[len(what)-1])
	}
}

// Group is several collectors as one.
type Group []prometheus.Collector

// Describe implements prometheus.Collector.
func (g Group) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range g {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (g Group) Collect(ch chan<- prometheus.Metric) {
	for _, c := range g {
		c.Collect(ch)
	}
}

// NewBuildInfo returns a collector that tells what the program was built from.
func NewBuildInfo(version, revision, goVersion string) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "culvert_build_info",
		Help:        "Always 1, with the version of culvert, the revision it was built from if that is known, and the version of Go.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "goversion": goVersion},
	})
	g.Set(1)
	return g
}

var (
	reloadDesc = prometheus.NewDesc("culvert_config_last_reload_successful",
		"1 if the last attempt to read the configuration and to apply it was successful, 0 if it was refused.", nil, nil)
	reloadTimeDesc = prometheus.NewDesc("culvert_config_last_reload_success_timestamp_seconds",
		"When the configuration in force was applied, as Unix time.", nil, nil)
)

// Reload is a collector that tells how the last reload of the configuration went.
type Reload struct {
	mu sync.Mutex
	ok bool
	at time.Time // of the last success
}

// NewReload returns a Reload of a process that has just applied its configuration.
func NewReload() *Reload { return &Reload{ok: true, at: time.Now()} }

// Set notes a reload that has ended at that time. The configuration of a refused one is not in force.
func (r *Reload) Set(ok bool, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ok = ok
	if ok {
		r.at = at
	}
}

// Describe implements prometheus.Collector.
func (r *Reload) Describe(ch chan<- *prometheus.Desc) {
	ch <- reloadDesc
	ch <- reloadTimeDesc
}

// Collect implements prometheus.Collector.
func (r *Reload) Collect(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(reloadDesc, prometheus.GaugeValue, float64(OneIf(r.ok)))
	ch <- prometheus.MustNewConstMetric(reloadTimeDesc, prometheus.GaugeValue, Timestamp(r.at))
}
