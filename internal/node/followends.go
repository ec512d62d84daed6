// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"culvert/internal/decap/decapplane"
	"culvert/internal/host/pins"
)

// followEnds has tunnels end again at interfaces that were deleted and made again. A process of their network namespace
// does so whatever its own stages are: 'culvert lb decap' leaves none behind that could. Of several the first does.
func (f *follower) followEnds() {
	lost, err := decapplane.Lost()
	if err != nil {
		return // the next look reads them again; what keeps them from being read the commands say
	}
	still := make(map[string]string)
	tell := func(name, text string, args ...any) {
		if still[name] = text; f.ends[name] != text {
			f.log.Warn(text, append([]any{"interface", name}, args...)...)
		}
	}
	for _, u := range lost {
		name := u.Interface
		if slices.Contains(f.inst.Configured(), name) {
			continue // it is this data plane's now
		}
		if u.Why == pins.Gone {
			tell(name, "the interface does not exist: tunnels end at it again when it does ('culvert lb decap del' if they are not to)")
			continue
		}
		switch again, err := decapplane.Reattach(name); {
		case err != nil:
			tell(name, "the interface was made again, and no tunnel ends at it", "err", err)
		case again:
			f.log.Warn("the interface was deleted and made again: tunnels end at it again", "interface", name)
		}
	}
	f.ends = still
}
