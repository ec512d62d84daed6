// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// PlaneSource is a PortSource that also describes the data plane.
type PlaneSource interface {
	// Name is the name of the data plane, and Generic tells whether it is attached in generic mode.
	Name() string
	Generic() bool
	// LoadedAt returns when the programs were loaded. It is false if that is not known.
	LoadedAt() (time.Time, bool)
}

var (
	planeDesc = prometheus.NewDesc("culvert_dataplane_info",
		"Always 1, with the name of the data plane and the mode in which it is attached: native or generic.", []string{"name", "mode"}, nil)
	loadedDesc = prometheus.NewDesc("culvert_dataplane_loaded_timestamp_seconds",
		"When the programs of the data plane were loaded, as Unix time.", nil, nil)
)

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

// States of a stage of a process.
const (
	// StageStarting says that the stage has not read all of the host's state that it follows.
	StageStarting = "starting"
	// StageReady says that the stage is in step with the host, or needs no process.
	StageReady = "ready"
	// StageOut says that the stage has failed and follows the host no longer, though the process runs.
	StageOut = "out"
)

// StageSource is a PortSource that also knows the states of the process's stages, by their names.
type StageSource interface {
	StageStates() (map[string]string, error)
}

var stageDesc = prometheus.NewDesc("culvert_stage_state",
	"1 for the state that a stage of the process is in, 0 for the others: starting; ready, in step with the host; out, failed while the process goes on.",
	[]string{"stage", "state"}, nil)

// LimitSource is a PortSource that also knows how many packets a second may leave for a reason.
type LimitSource interface {
	Limits() ([]Limit, error)
}

// Limit is the rate of a reason, for the packets of all interfaces together.
type Limit struct {
	Stage, Verdict, Reason string
	// Rate is in packets a second. It is 0 for a reason that lets no packet through.
	Rate float64
}

var limitDesc = prometheus.NewDesc("culvert_reason_limit_packets_per_second",
	"How many packets a second may leave with a verdict for a reason. Punts over it are dropped, with the verdict limited.",
	[]string{"stage", "verdict", "reason"}, nil)

func collectPlane(source any, ch chan<- prometheus.Metric) {
	s, ok := source.(PlaneSource)
	if !ok {
		return
	}
	mode := "native"
	if s.Generic() {
		mode = "generic"
	}
	ch <- prometheus.MustNewConstMetric(planeDesc, prometheus.GaugeValue, 1, s.Name(), mode)
	if at, ok := s.LoadedAt(); ok {
		ch <- prometheus.MustNewConstMetric(loadedDesc, prometheus.GaugeValue, Timestamp(at))
	}
}

func collectStages(source any, ch chan<- prometheus.Metric) {
	s, ok := source.(StageSource)
	if !ok {
		return
	}
	states, err := s.StageStates()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(stageDesc, err)
		return
	}
	for name, state := range states {
		SendState(ch, stageDesc, state, []string{StageStarting, StageReady, StageOut}, name)
	}
}

func collectLimits(source any, ch chan<- prometheus.Metric) {
	s, ok := source.(LimitSource)
	if !ok {
		return
	}
	limits, err := s.Limits()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(limitDesc, err)
		return
	}
	for _, l := range limits {
		ch <- prometheus.MustNewConstMetric(limitDesc, prometheus.GaugeValue, l.Rate, l.Stage, l.Verdict, l.Reason)
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

// SendState sends a metric for each of the states, whose name is the last label: 1 for the present state, 0 for the others. A
// present state that is not among them gets a metric too.
func SendState(ch chan<- prometheus.Metric, desc *prometheus.Desc, present string, states []string, labels ...string) {
	if !slices.Contains(states, present) {
		states = append(slices.Clone(states), present)
	}
	for _, state := range states {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(OneIf(state == present)), append(slices.Clone(labels), state)...)
	}
}

// Timestamp returns a time as metrics have it: the seconds since 1970.
func Timestamp(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
