// SPDX-License-Identifier: Apache-2.0

package bpfobj

const (
	// ReasonCount is the number of indexes of reasons. Not all are in use. The counter of packets over the limit of a reason
	// is at the reason's index plus ReasonCount.
	ReasonCount = int(PipelineReasonBlockREASON_MAX)
	// reasonBits is REASON_BITS of bpf/core/reason.h. The index is in the low bits of a reason, and the verdict above it.
	reasonBits = 9
)

// Index returns the index of the reason in the maps of counters and limits.
func (r PipelineReason) Index() uint32 { return uint32(r) & (1<<reasonBits - 1) }
