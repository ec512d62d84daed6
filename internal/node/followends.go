// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"culvert/internal/decap/decapplane"
	"culvert/internal/host/pins"
)

// followEnds attaches the end of tunnels to interfaces that were deleted and made again. 'culvert lb decap add' leaves no
// process behind that could do so, therefore every process does it for its network namespace, whatever its own stages are. If
// there are several, the first one does it.
func (f *follower) followEnds() {
	lost, err := decapplane.Lost()
	if err != nil {
		return // the next check reads them again, and commands report the error
	}
	logged := make(map[string]string)
	warn := func(name, text string, args ...any) {
		if logged[name] = text; f.endsLogged[name] != text {
			f.log.Warn(text, append([]any{"interface", name}, args...)...)
		}
	}
	for _, u := range lost {
		name := u.Interface
		if slices.Contains(f.inst.Configured(), name) {
			continue // this data plane attaches to it
		}
		if u.Why == pins.Gone {
			warn(name, "the interface does not exist: tunnels end at it again when it does ('culvert lb decap del' if they are not to)")
			continue
		}
		switch again, err := decapplane.Reattach(name); {
		case err != nil:
			warn(name, "the interface was made again, and no tunnel ends at it", "err", err)
		case again:
			f.log.Warn("the interface was deleted and made again: tunnels end at it again", "interface", name)
		}
	}
	f.endsLogged = logged
}
