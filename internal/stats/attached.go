// SPDX-License-Identifier: Apache-2.0

package stats

import "github.com/prometheus/client_golang/prometheus"

// AttachedSource tells of each interface that the data plane was told to be on whether it carries it, and the same of
// those where tunnels end. A PortSource may be one.
type AttachedSource interface {
	AttachedPorts() map[string]bool
}

var attachedDesc = prometheus.NewDesc("culvert_interface_attached",
	"1 for an interface that carries the program that it was told to carry, also that of 'culvert lb decap', 0 for one that does not.", []string{"interface"}, nil)

// UpSource tells of each interface that carries the data plane whether packets can come in by it. A PortSource may be one.
type UpSource interface {
	UpPorts() map[string]bool
}

var upDesc = prometheus.NewDesc("culvert_interface_up",
	"1 for an interface with the program that is up and has a carrier, 0 for one that is down or has none.", []string{"interface"}, nil)

// StageSource tells of each stage that the process has whether it is out: nobody keeps it in step. A PortSource may be one.
type StageSource interface {
	StagesOut() (map[string]bool, error)
}

var stageDesc = prometheus.NewDesc("culvert_stage_out",
	"1 for a stage that has failed while the process goes on with the others, 0 for one that has not.", []string{"stage"}, nil)

func collectStages(source any, ch chan<- prometheus.Metric) {
	s, ok := source.(StageSource)
	if !ok {
		return
	}
	out, err := s.StagesOut()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(stageDesc, err)
		return
	}
	for name, is := range out {
		ch <- prometheus.MustNewConstMetric(stageDesc, prometheus.GaugeValue, float64(oneIf(is)), name)
	}
}

func collectAttached(source any, ch chan<- prometheus.Metric) {
	if s, ok := source.(AttachedSource); ok {
		collectFlags(attachedDesc, s.AttachedPorts(), ch)
	}
	if s, ok := source.(UpSource); ok {
		collectFlags(upDesc, s.UpPorts(), ch)
	}
}

func collectFlags(desc *prometheus.Desc, on map[string]bool, ch chan<- prometheus.Metric) {
	for name, is := range on {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(oneIf(is)), name)
	}
}
