// SPDX-License-Identifier: Apache-2.0

package stats

import "github.com/prometheus/client_golang/prometheus"

// AttachedSource is a PortSource that also knows which interfaces carry what they should. AttachedPorts is keyed by the
// interfaces that the data plane was told to be on and those where tunnels end. A value is true if the program is there.
type AttachedSource interface {
	AttachedPorts() map[string]bool
}

var attachedDesc = prometheus.NewDesc("culvert_interface_attached",
	"1 for an interface that carries the program that it was told to carry, also that of 'culvert lb decap', 0 for one that does not.", []string{"interface"}, nil)

// UpSource is a PortSource that also knows which interfaces can receive packets. UpPorts is keyed by the interfaces that
// carry the data plane. A value is true if the interface is up and has a carrier.
type UpSource interface {
	UpPorts() map[string]bool
}

var upDesc = prometheus.NewDesc("culvert_interface_up",
	"1 for an interface with the program that is up and has a carrier, 0 for one that is down or has none.", []string{"interface"}, nil)

// StageSource is a PortSource that also knows which stages have failed while the process went on. StagesOut is keyed by the
// stages of the process. A value is true if nothing keeps the stage in step any more.
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
		ch <- prometheus.MustNewConstMetric(stageDesc, prometheus.GaugeValue, float64(OneIf(is)), name)
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
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(OneIf(is)), name)
	}
}
