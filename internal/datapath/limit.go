// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"maps"

	"culvert/internal/bpfobj"
	"culvert/internal/stats"
)

const (
	// PuntRate is the default rate of a reason to punt, in packets a second. The reference router can handle all reasons at
	// this rate at once.
	PuntRate = 10_000
	// TrafficRate is for punted packets that are ordinary traffic, which only the slow path can forward.
	TrafficRate = 100_000
	// puntBurst is by how many nanoseconds packets may come ahead of their rate. It is longer than a tick of the coarse
	// clock that the programs read.
	puntBurst = 100_000_000
	// limitNever is LIMIT_NEVER of bpf/core/limit.h.
	limitNever = ^uint64(0)
)

// RateLimit returns a limit of rate packets a second, which must not be 0.
func RateLimit(rate uint64) bpfobj.PipelineLimit {
	return bpfobj.PipelineLimit{Interval: 1e9 / rate, Burst: puntBurst}
}

// NoPacket returns a limit that lets no packet through.
func NoPacket() bpfobj.PipelineLimit {
	return bpfobj.PipelineLimit{Interval: limitNever, Due: limitNever}
}

// SetLimit sets the limit of a reason, for the packets of all interfaces together.
func (i *Instance) SetLimit(reason bpfobj.PipelineReason, limit bpfobj.PipelineLimit) error {
	if err := i.maps[bpfobj.PipelineMapLimits].Put(reason.Index(), limit); err != nil {
		return fmt.Errorf("writing the limit of %s for %s: %w", i.Name(), Reasons()[reason.Index()].Name, err)
	}
	return nil
}

// Limits implements stats.LimitSource. It returns the limits in force, in the order of the reasons.
func (i *Instance) Limits() ([]stats.Limit, error) {
	if err := i.SameReasons(); err != nil {
		return nil, err
	}
	var all []stats.Limit
	for n, r := range Reasons() {
		if r.Name == "" {
			continue
		}
		var l bpfobj.PipelineLimit
		if err := i.maps[bpfobj.PipelineMapLimits].Lookup(uint32(n), &l); err != nil {
			return nil, fmt.Errorf("reading the limit of %s for %s: %w", i.Name(), r.Name, err)
		}
		if l.Interval == 0 {
			continue
		}
		limit := stats.Limit{Stage: r.Stage, Verdict: string(r.Verdict), Reason: r.Name}
		if l.Due != limitNever {
			limit.Rate = 1e9 / float64(l.Interval)
		}
		all = append(all, limit)
	}
	return all, nil
}

// fillLimits writes the limits of all reasons: PuntRate for those to punt, and what the Limiters among the parts say.
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

// limitDomains returns the number of domains (bpf/core/limit.h): one for each interface, and those of the parts.
func limitDomains(parts []Part) int {
	n := MaxPorts
	for _, p := range parts {
		if l, ok := p.(Limiter); ok {
			n += l.LimitDomains()
		}
	}
	return n
}
