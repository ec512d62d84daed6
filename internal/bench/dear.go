// SPDX-License-Identifier: Apache-2.0

package bench

// insnDear are the packets that take each stage longest of all that a stranger can send, as far as is known. None is to
// take more than twice what the usual packet does that the stage has not seen before: culvert-cold, lb-new, route-fib4 and
// filter-protect.
func insnDear() []candidate {
	return []candidate{
		// It changes segments, so there are two hop fields to verify; no path is like another.
		{name: "dear-scion", device: func(Terms) Device {
			return &culvert{traffic: scionTraffic{cold: true, crossing: true, shapes: true, size: frameSize}}
		}},
		LBDear(insnFrames), RouteDear(), FilterDear(),
	}
}
