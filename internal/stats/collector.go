// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	packetsDesc = prometheus.NewDesc("culvert_packets_total",
		"Packets received, by network interface, and by the stage, verdict and reason with which they left; culvert_reason_info explains the reasons.",
		[]string{"interface", "stage", "verdict", "reason"}, nil)
	bytesDesc = prometheus.NewDesc("culvert_bytes_total",
		"Bytes of the frames received, by network interface, stage, verdict and reason.",
		[]string{"interface", "stage", "verdict", "reason"}, nil)
	explainedDesc = prometheus.NewDesc("culvert_reason_info",
		"Always 1, with the sentence that explains a reason: to be joined on verdict and reason. A reason without packets is left out.",
		[]string{"verdict", "reason", "text"}, nil)
	cpuDesc = prometheus.NewDesc("culvert_cpu_packets_total",
		"Packets on which a CPU has given a verdict, by network interface of arrival and CPU. With workers it is the CPU of the worker.",
		[]string{"interface", "cpu"}, nil)
	lostDesc = prometheus.NewDesc("culvert_lost_packets_total",
		"Packets forwarded and then lost on the way out, or lost on the way to a worker, by network interface of arrival and kind of loss.",
		[]string{"interface", "loss"}, nil)
)

type collector struct {
	source PortSource
	others []prometheus.Collector
}

// NewCollector returns a collector for the counters of all interfaces. It adds the metrics of each interface that source also
// implements: PlaneSource, AttachedSource, UpSource, StageSource, LimitSource, WorkerSource, CollectorSource.
func NewCollector(source PortSource) prometheus.Collector {
	c := collector{source: source}
	if s, ok := source.(CollectorSource); ok {
		c.others = s.Collectors()
	}
	return c
}

// CollectorSource is a PortSource that also has metrics of its own.
type CollectorSource interface {
	Collectors() []prometheus.Collector
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		packetsDesc, bytesDesc, cpuDesc, lostDesc, explainedDesc, planeDesc, loadedDesc, attachedDesc, upDesc, stageDesc, limitDesc,
		enqueuedDesc, spreadDesc,
	} {
		ch <- d
	}
	for _, other := range c.others {
		other.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	collectPlane(c.source, ch)
	collectAttached(c.source, ch)
	collectLimits(c.source, ch)
	collectStages(c.source, ch)
	collectWorkers(c.source, ch)
	for _, other := range c.others {
		other.Collect(ch)
	}
	ports, err := c.source.Ports()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(packetsDesc, err)
		return
	}
	explained := make(map[[2]string]string) // by verdict and reason
	for _, p := range ports {
		for _, r := range p.Reasons {
			verdict := r.Outcome()
			explained[[2]string{verdict, r.Name}] = r.Sentence()
			ch <- prometheus.MustNewConstMetric(packetsDesc, prometheus.CounterValue,
				float64(r.Packets), p.Interface, r.Stage, verdict, r.Name)
			ch <- prometheus.MustNewConstMetric(bytesDesc, prometheus.CounterValue,
				float64(r.Bytes), p.Interface, r.Stage, verdict, r.Name)
		}
		for _, c := range p.CPUs {
			ch <- prometheus.MustNewConstMetric(cpuDesc, prometheus.CounterValue, float64(c.Packets), p.Interface, strconv.Itoa(c.CPU))
		}
		for loss, n := range p.Losses {
			ch <- prometheus.MustNewConstMetric(lostDesc, prometheus.CounterValue, float64(n),
				p.Interface, loss)
		}
	}
	for key, sentence := range explained {
		ch <- prometheus.MustNewConstMetric(explainedDesc, prometheus.GaugeValue, 1, key[0], key[1], sentence)
	}
}

// OneIf is the value of a metric that tells whether something is so.
func OneIf(is bool) uint64 {
	if is {
		return 1
	}
	return 0
}
