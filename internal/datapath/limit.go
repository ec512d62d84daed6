// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"maps"

	"culvert/internal/bpfobj"
)

const (
	// PuntRate is how many packets a second one reason may take to the slow path. It leaves the
	// reference data plane room for all reasons at once.
	PuntRate = 10_000
	// TrafficRate is for packets that no one else can carry: they are traffic, not mistakes.
	TrafficRate = 100_000
	// puntBurst is how far ahead of its rate a reason may be, ns; longer than a clock tick.
	puntBurst = 100_000_000
	// limitNever is LIMIT_NEVER of bpf/core/limit.h.
	limitNever = ^uint64(0)
)

// RateLimit lets so many packets a second through.
func RateLimit(rate uint64) bpfobj.PipelineLimit {
	return bpfobj.PipelineLimit{Interval: 1e9 / rate, Burst: puntBurst}
}

// NoPacket is a limit that lets none through.
func NoPacket() bpfobj.PipelineLimit {
	return bpfobj.PipelineLimit{Interval: limitNever, Due: limitNever}
}

// SetLimit says how fast packets with a reason may come through, whatever interface they come from.
func (i *Instance) SetLimit(reason bpfobj.PipelineReason, limit bpfobj.PipelineLimit) error {
	if err := i.maps[bpfobj.PipelineMapLimits].Put(reason.Index(), limit); err != nil {
		return fmt.Errorf("writing the limit of %s for %s: %w", i.Name(), Reasons()[reason.Index()].Name, err)
	}
	return nil
}

// fillLimits sets how fast each reason may use the slow path, and what else parts limit.
func (i *Instance) fillLimits() error {
	rates := make(map[bpfobj.PipelineReason]uint64)
	for _, r := range Reasons() {
		if r.Verdict == VerdictPunt {
			rates[r.number] = PuntRate
		}
	}
	for _, p := range i.parts {
		if l, ok := p.(Limiter); ok {
			maps.Copy(rates, l.Limits())
		}
	}
	for reason, rate := range rates {
		if err := i.SetLimit(reason, RateLimit(rate)); err != nil {
			return err
		}
	}
	return nil
}

// limitDomains is how many groups of packets are limited apart: the interfaces, and what parts add.
func limitDomains(parts []Part) int {
	n := MaxPorts
	for _, p := range parts {
		if l, ok := p.(Limiter); ok {
			n += l.LimitDomains()
		}
	}
	return n
}
