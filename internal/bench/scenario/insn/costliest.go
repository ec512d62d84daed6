// SPDX-License-Identifier: Apache-2.0

package insn

import (
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario/filterrun"
	"culvert/internal/bench/scenario/lbrun"
	"culvert/internal/bench/scenario/routerun"
)

// dearest are the packets that take each stage longest of all that a stranger can send, as far as is known. None is to
// take more than twice what the usual packet does that the stage has not seen before: culvert-cold, lb-new, route-fib4 and
// filter-protect.
func costliest() []peer.Candidate {
	return []peer.Candidate{
		// It changes segments, so there are two hop fields to verify; no path is like another.
		{Name: "dear-scion", Device: func(peer.DeviceOptions) peer.Device {
			return &peer.Culvert{Traffic: peer.SCIONTraffic{Cold: true, Crossing: true, Shapes: true, Size: peer.FrameSize}}
		}},
		lbrun.Costliest(differentFrames), routerun.Costliest(), filterrun.Costliest(),
	}
}
