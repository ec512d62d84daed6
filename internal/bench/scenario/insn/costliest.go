// SPDX-License-Identifier: Apache-2.0

package insn

import (
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario/filterrun"
	"culvert/internal/bench/scenario/lbrun"
	"culvert/internal/bench/scenario/routerun"
)

// costliest are rows with the packets that cost each stage most, of all known ones that an outside host can send. None should
// cost much more than twice as much as a usual packet that the stage sees for the first time: that of culvert-cold, lb-new,
// route-fib4 or filter-protect.
func costliest() []peer.Candidate {
	return []peer.Candidate{
		// The packets change segments, so there are two hop fields to verify, and all paths have different lengths.
		{Name: "dear-scion", Device: func(peer.DeviceOptions) peer.Device {
			return &peer.Culvert{Traffic: peer.SCIONTraffic{Cold: true, Crossing: true, Shapes: true, Size: peer.FrameSize}}
		}},
		lbrun.Costliest(differentFrames), routerun.Costliest(), filterrun.Costliest(),
	}
}
