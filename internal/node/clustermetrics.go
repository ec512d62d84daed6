// SPDX-License-Identifier: Apache-2.0

package node

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/cluster/etcd"
	"culvert/internal/stats"
)

func clusterDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("culvert_cluster_"+name, help+"; left out without [cluster].", nil, nil)
}

var (
	clusterInfo = prometheus.NewDesc("culvert_cluster_info", "Always 1, with the names of the cluster and of this node; left out without [cluster].",
		[]string{"cluster", "node"}, nil)
	clusterReached  = clusterDesc("reached", "1 if etcd answers, 0 if it does not, and what runs goes on")
	clusterSince    = clusterDesc("reached_change_timestamp_seconds", "Since when culvert_cluster_reached is as it is, as Unix time")
	clusterRevision = clusterDesc("revision", "The revision of the cluster that runs, 0 for the node's own file alone")
	clusterBehind   = clusterDesc("behind", "1 if another revision is to run than does, 0 otherwise")
	clusterRefused  = clusterDesc("refused", "1 if the node has refused the revision that is to run, 0 otherwise")
	clusterUrgent   = clusterDesc("urgent", "Urgent changes in force")
	clusterFailed   = clusterDesc("urgent_failed", "Urgent changes that could not be carried out")
	clusterTwin     = clusterDesc("name_taken", "1 if another node has this node's name, 0 otherwise")
	clusterDenied   = clusterDesc("denied", "1 if etcd refuses this node's certificate, 0 otherwise")
	clusterMaintain = clusterDesc("maintenance", "1 in maintenance, 0 otherwise")
	clusterState    = clusterDesc("state_problems", "Problems of the state directory: last good documents that are corrupt or cannot be written")
	clusterSessions = clusterDesc("sessions_total", "How often the node began to follow etcd")
	clusterWrites   = clusterDesc("state_writes_total", "How often the node wrote its state to etcd")
	clusterExpiry   = clusterDesc("certificate_expiry_timestamp_seconds", "When the node's certificate expires, as Unix time")
)

// clusterMetrics collects how the node stands with its cluster, nothing without one.
type clusterMetrics struct{ member atomic.Pointer[member] }

func (c *clusterMetrics) set(m *member) { c.member.Store(m) }

// Describe implements prometheus.Collector.
func (c *clusterMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		clusterInfo, clusterReached, clusterSince, clusterRevision, clusterBehind, clusterRefused, clusterUrgent, clusterFailed, clusterTwin, clusterDenied,
		clusterMaintain, clusterState, clusterSessions, clusterWrites, clusterExpiry,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *clusterMetrics) Collect(ch chan<- prometheus.Metric) {
	m := c.member.Load()
	if m == nil {
		return
	}
	v := m.agent.View()
	problems := len(m.problems.all())
	for _, problem := range []string{v.KeepProblem, v.OverProblem} {
		problems += int(stats.OneIf(problem != ""))
	}
	ch <- prometheus.MustNewConstMetric(clusterInfo, prometheus.GaugeValue, 1, m.table.Name, m.table.Node)
	for _, g := range []struct {
		desc  *prometheus.Desc
		value float64
	}{
		{clusterReached, float64(stats.OneIf(v.Reached))},
		{clusterSince, float64(v.Since.Unix())},
		{clusterRevision, float64(v.Revision)},
		{clusterBehind, float64(stats.OneIf(v.Behind))},
		{clusterRefused, float64(stats.OneIf(v.Refused != ""))},
		{clusterUrgent, float64(len(v.Urgent))},
		{clusterFailed, float64(len(v.UrgentFailed))},
		{clusterTwin, float64(stats.OneIf(v.Twin != "" || v.Second != ""))},
		{clusterDenied, float64(stats.OneIf(!v.Denied.IsZero()))},
		{clusterMaintain, float64(stats.OneIf(v.Maintain != ""))},
		{clusterState, float64(problems)},
	} {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value)
	}
	ch <- prometheus.MustNewConstMetric(clusterSessions, prometheus.CounterValue, float64(v.Sessions))
	ch <- prometheus.MustNewConstMetric(clusterWrites, prometheus.CounterValue, float64(v.Writes))
	if m.table.TLS == nil {
		return
	}
	if until, err := etcd.Expiry(m.table.TLS); err == nil {
		ch <- prometheus.MustNewConstMetric(clusterExpiry, prometheus.GaugeValue, float64(until.Unix()))
	}
}
