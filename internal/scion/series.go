// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/scionproto/scion/pkg/addr"
	scionrouter "github.com/scionproto/scion/router"

	"culvert/internal/scion/scionplane"
)

// The reference's metrics are variables of its package: all data planes of a process count in the same ones.

// uncountedServices returns metrics that services are not counted in.
func uncountedServices(m *scionrouter.Metrics) *scionrouter.Metrics {
	without := *m
	labels := []string{"service", "isd_as"}
	without.ServiceInstanceCount = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "uncounted"}, labels)
	without.ServiceInstanceChanges = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "uncounted"}, labels)
	return &without
}

// services returns the addresses of the AS's services by the names that metrics give them.
func (r *Router) services() map[string][]netip.AddrPort {
	found := map[string][]netip.AddrPort{}
	for _, svc := range []addr.SVC{addr.SvcDS, addr.SvcCS} {
		all, _ := r.Control.Topo.Multicast(svc) // the error is about a service without addresses
		for _, a := range all {
			found[svc.BaseString()] = append(found[svc.BaseString()], a.AddrPort())
		}
	}
	return found
}

// countServices brings the metrics of services up to date, which count each change.
func countServices(m *scionrouter.Metrics, before, now *Router) {
	was, is := before.services(), now.services()
	ia := now.Control.IA.String()
	for _, svc := range []addr.SVC{addr.SvcDS, addr.SvcCS} {
		name := svc.BaseString()
		if len(was[name])+len(is[name]) == 0 {
			continue
		}
		labels := prometheus.Labels{"service": name, "isd_as": ia}
		m.ServiceInstanceChanges.With(labels).Add(float64(missingFrom(was[name], is[name]) + missingFrom(is[name], was[name])))
		m.ServiceInstanceCount.With(labels).Set(float64(len(is[name])))
	}
}

// missingFrom counts the elements of a that b lacks.
func missingFrom[T comparable](a, b []T) (n int) {
	for _, x := range a {
		if !slices.Contains(b, x) {
			n++
		}
	}
	return n
}

// deleteSeries deletes the series of links that gone has and stays does not have.
func deleteSeries(m *scionrouter.Metrics, gone, stays *Router) {
	kept := map[[3]string]bool{}
	for i := range stays.Datapath.Links {
		kept[linkSeries(stays, i)] = true
	}
	for i, l := range gone.Datapath.Links {
		if kept[linkSeries(gone, i)] {
			continue
		}
		labels := gone.linkLabels(i)
		for _, v := range []interface {
			DeletePartialMatch(prometheus.Labels) int
		}{m.InputBytesTotal, m.OutputBytesTotal, m.InputPacketsTotal, m.OutputPacketsTotal, m.ProcessedPackets,
			m.DroppedPacketsTotal, m.InterfaceUp, m.BFDInterfaceStateChanges, m.BFDPacketsSent, m.BFDPacketsReceived} {
			v.DeletePartialMatch(labels)
		}
		if l.Scope != scionplane.ScopeSibling {
			continue
		}
		sibling := prometheus.Labels{"isd_as": gone.Control.IA.String(), "sibling": gone.siblingName(l)}
		if name := sibling["sibling"]; name == "" || stays.hasRouter(name) {
			continue
		}
		m.SiblingReachable.Delete(sibling)
		m.SiblingBFDPacketsSent.Delete(sibling)
		m.SiblingBFDPacketsReceived.Delete(sibling)
		m.SiblingBFDStateChanges.Delete(sibling)
	}
}

// linkSeries identifies the series of a link.
func linkSeries(r *Router, link int) [3]string {
	labels := r.linkLabels(link)
	return [3]string{labels["interface"], labels["isd_as"], labels["neighbor_isd_as"]}
}

// siblingName returns the name of the sibling router that a link leads to, "" if the topology has none.
func (r *Router) siblingName(l scionplane.Link) string {
	for name, br := range r.Control.Topo.Writable().BR {
		if unmap(br.InternalAddr) == l.Remote {
			return name
		}
	}
	return ""
}

func (r *Router) hasRouter(name string) bool {
	_, ok := r.Control.Topo.BR(name)
	return ok
}

// processSeries describes what the reference registers for the process when a data plane starts.
type processSeries struct{}

// Describe implements prometheus.Collector.
func (processSeries) Describe(ch chan<- *prometheus.Desc) {
	for _, s := range []struct{ name, help string }{
		{"process_running_seconds_total", "CPU time the process used (running state) since it started (all threads summed)."},
		{"process_runnable_seconds_total", "CPU time the process was denied (runnable state) since it started (all threads summed)."},
		{"go_sched_maxprocs_threads", "The current runtime.GOMAXPROCS setting. The number of cores Go code uses simultaneously"},
		{"process_metrics_tasklist_updates_total", "The number of time the processmetrics collector recreated its list of tasks."},
	} {
		ch <- prometheus.NewDesc(s.name, s.help, nil, nil)
	}
}

// Collect implements prometheus.Collector.
func (processSeries) Collect(chan<- prometheus.Metric) {}

// withoutProcessSeries takes these series off the registry until restore is called: the start of a second data plane would log an
// error about them.
func withoutProcessSeries() (restore func()) {
	var there prometheus.AlreadyRegisteredError
	err := prometheus.Register(processSeries{})
	if err == nil {
		prometheus.Unregister(processSeries{})
	}
	if !errors.As(err, &there) {
		return func() {}
	}
	prometheus.Unregister(there.ExistingCollector)
	return func() {
		prometheus.Unregister(processSeries{})
		_ = prometheus.Register(there.ExistingCollector)
	}
}
