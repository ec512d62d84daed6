// SPDX-License-Identifier: Apache-2.0

package stats

import "github.com/prometheus/client_golang/prometheus"

var (
	packetsDesc = prometheus.NewDesc("culvert_packets_total",
		"Packets received, by interface and by the reason for what was done with them.",
		[]string{"interface", "verdict", "reason"}, nil)
	bytesDesc = prometheus.NewDesc("culvert_bytes_total",
		"Bytes of the frames received, by interface and reason.",
		[]string{"interface", "verdict", "reason"}, nil)
	lostDesc = prometheus.NewDesc("culvert_lost_packets_total",
		"Packets forwarded and then lost on the way out, or lost on the way to a worker, by ingress interface and kind of loss.",
		[]string{"interface", "loss"}, nil)
)

// VerdictLimited stands in place of "punt" where packets did not get to the slow path because their
// reason had used up its rate.
const VerdictLimited = "limited"

type collector struct{ source PortSource }

// NewCollector gives the counters of all interfaces as metrics, those of the filter if source is a FilterSource, and those of
// the load balancer if it is a BalanceSource.
func NewCollector(source PortSource) prometheus.Collector { return collector{source} }

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- packetsDesc
	ch <- bytesDesc
	ch <- lostDesc
	ch <- attachedDesc
	ch <- upDesc
	ch <- stageDesc
	describeFilter(ch)
	describeBalance(ch)
	describeBGP(ch)
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	collectAttached(c.source, ch)
	collectStages(c.source, ch)
	collectFilter(c.source, ch)
	collectBalance(c.source, ch)
	collectBGP(c.source, ch)
	ports, err := c.source.Ports()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(packetsDesc, err)
		return
	}
	for _, p := range ports {
		for _, r := range p.Reasons {
			verdict := r.Verdict
			if r.Limited {
				verdict = VerdictLimited
			}
			ch <- prometheus.MustNewConstMetric(packetsDesc, prometheus.CounterValue,
				float64(r.Packets), p.Interface, verdict, r.Name)
			ch <- prometheus.MustNewConstMetric(bytesDesc, prometheus.CounterValue,
				float64(r.Bytes), p.Interface, verdict, r.Name)
		}
		for loss, n := range p.Losses {
			ch <- prometheus.MustNewConstMetric(lostDesc, prometheus.CounterValue, float64(n),
				p.Interface, loss)
		}
	}
}
