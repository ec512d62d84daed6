// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"

	"culvert/internal/bpfobj"
)

const (
	// puntRate is how many packets a second one reason may take to the slow path. It leaves the
	// reference data plane room for all reasons at once.
	puntRate = 10_000
	// ownRate is for packets that no one else can carry: they are traffic, not mistakes.
	ownRate = 100_000
	// unknownRate is for packets to end hosts that nobody has found yet. Each such host takes a place in the kernel's
	// neighbour table, which by default begins to throw out others at 512.
	unknownRate = 1_000
	// unreachableRate is how many packets a second are told that nobody takes them: as many errors as Linux sends
	// (net.ipv4.icmp_msgs_per_sec).
	unreachableRate = 1_000
	// puntBurst is how far ahead of its rate a reason may be, ns; longer than a clock tick.
	puntBurst = 100_000_000
	// limitNever is LIMIT_NEVER of bpf/core/limit.h.
	limitNever = ^uint64(0)
	// limitDomainLinks is DOMAIN_LINKS of bpf/scion/limit.h: how many domains there are without those of links.
	limitDomainLinks = 2 * maxPorts
)

// fillLimits sets how fast each reason may use the slow path, and how often clients are told that packets do not fit, or
// are for nobody.
func (i *Instance) fillLimits(unattended bool) error {
	for n, r := range Reasons() {
		switch r.number {
		case bpfobj.PipelineReasonXMIT_LB_TOO_BIG, bpfobj.PipelineReasonXMIT_LB_UNREACHABLE:
		default:
			if r.Verdict != VerdictPunt {
				continue
			}
		}
		limit := puntLimit(r.number)
		if unattended && r.number == bpfobj.PipelineReasonPUNT_SCION_HOST_UNKNOWN {
			// Without a process nobody finds hosts: they are the kernel's for good.
			limit = puntLimit(bpfobj.PipelineReasonPUNT_SCION_HOST_KERNEL)
		}
		if err := i.maps[bpfobj.PipelineMapLimits].Put(uint32(n), limit); err != nil {
			return fmt.Errorf("writing the limit of %s: %w", r.Name, err)
		}
	}
	return nil
}

func puntLimit(reason bpfobj.PipelineReason) bpfobj.PipelineLimit {
	rate := uint64(puntRate)
	switch reason {
	case bpfobj.PipelineReasonPUNT_SCION_BFD, bpfobj.PipelineReasonPUNT_SCION_NEXT_HOP, bpfobj.PipelineReasonPUNT_SCION_HOST_KERNEL,
		bpfobj.PipelineReasonPUNT_SCION_MTU, bpfobj.PipelineReasonPUNT_SCION_CHECKSUM,
		bpfobj.PipelineReasonPUNT_ROUTE_MTU, bpfobj.PipelineReasonPUNT_ROUTE_SOURCE, bpfobj.PipelineReasonPUNT_ROUTE_NONE:
		rate = ownRate
	case bpfobj.PipelineReasonPUNT_SCION_HOST_UNKNOWN:
		rate = unknownRate
	case bpfobj.PipelineReasonXMIT_LB_UNREACHABLE:
		rate = unreachableRate
	}
	return bpfobj.PipelineLimit{Interval: 1e9 / rate, Burst: puntBurst}
}
