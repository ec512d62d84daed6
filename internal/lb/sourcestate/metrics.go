// SPDX-License-Identifier: Apache-2.0

package sourcestate

import (
	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/stats"
)

var (
	ofSource  = []string{"vip", "source", "kind"}
	stateDesc = prometheus.NewDesc("culvert_lb_source_state",
		"1 for the state of a source of backends, 0 for the others: waiting, not answered yet; ok; failing; held, its answer would take too many backends away; refused, the load balancer cannot have its backends.",
		append(ofSource[:3:3], "state"), nil)
	backendsDesc = prometheus.NewDesc("culvert_lb_source_backends",
		"Backends in force that a source names.", ofSource, nil)
	leavingDesc = prometheus.NewDesc("culvert_lb_source_leaving_backends",
		"Backends that a source names no more and that keep their flows for a while.", ofSource, nil)
	answeredDesc = prometheus.NewDesc("culvert_lb_source_answered_timestamp_seconds",
		"When a source last answered, as Unix time.", ofSource, nil)
	answersDesc = prometheus.NewDesc("culvert_lb_source_answers_total",
		"Answers of a source.", ofSource, nil)
	failuresDesc = prometheus.NewDesc("culvert_lb_source_failures_total",
		"Times that a source could not be asked or gave no list of backends.", ofSource, nil)
	changesDesc = prometheus.NewDesc("culvert_lb_source_changes_total",
		"Times that backends were changed because of a source.", ofSource, nil)
)

var states = []string{Waiting, OK, Failing, Held, Refused}

// Describe sends the descriptions of the metrics of sources.
func Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{stateDesc, backendsDesc, leavingDesc, answeredDesc, answersDesc, failuresDesc, changesDesc} {
		ch <- d
	}
}

// Collect sends the metrics of sources.
func Collect(sources []Source, ch chan<- prometheus.Metric) {
	for _, s := range sources {
		labels := []string{s.VIP, s.Name, s.Kind}
		send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
			ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
		}
		stats.SendState(ch, stateDesc, s.State, states, labels...)
		send(backendsDesc, prometheus.GaugeValue, float64(s.Backends))
		send(leavingDesc, prometheus.GaugeValue, float64(s.Leaving))
		if s.Answered != nil {
			send(answeredDesc, prometheus.GaugeValue, stats.Timestamp(*s.Answered))
		}
		send(answersDesc, prometheus.CounterValue, float64(s.Answers))
		send(failuresDesc, prometheus.CounterValue, float64(s.Failures))
		send(changesDesc, prometheus.CounterValue, float64(s.Changes))
	}
}
