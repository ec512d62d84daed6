// SPDX-License-Identifier: Apache-2.0

package bpfobj

const (
	// ReasonCount is how many indexes of reasons there are, of which not all are in use. Packets over a rate are counted
	// that far behind the index of their reason.
	ReasonCount = int(PipelineReasonBlockREASON_MAX)
	// reasonBits is REASON_BITS of bpf/core/reason.h: the verdict stands above the index.
	reasonBits = 9
)

// Index is where counters and limits of the reason are kept.
func (r PipelineReason) Index() uint32 { return uint32(r) & (1<<reasonBits - 1) }
