// SPDX-License-Identifier: Apache-2.0

package config

import "fmt"

// What becomes of a start when an interface does not exist.
const (
	// MissingWait attaches to the others, and to the missing one when it is there.
	MissingWait = "wait"
	// MissingRefuse is an error.
	MissingRefuse = "refuse"
)

// What a process does when its data plane is detached by somebody else.
const (
	// DetachedExit ends it.
	DetachedExit = "exit"
	// DetachedAttach attaches again.
	DetachedAttach = "attach"
	// DetachedStay goes on with the SCION router's slow path alone.
	DetachedStay = "stay"
)

// checkLife fills in defaults.
func (n *Node) checkLife(at Position) error {
	table, namer := n.namer()
	if n.Detached == "" {
		n.Detached = DetachedExit
		if namer != nil {
			n.Detached = DetachedStay
		}
	}
	switch n.Detached {
	case DetachedExit, DetachedAttach:
	case DetachedStay:
		if namer == nil {
			return at.Locate("detached", fmt.Errorf("detached = %q without [scion]: there is nothing to go on with, use %q or %q",
				n.Detached, DetachedExit, DetachedAttach))
		}
	default:
		return at.Locate("detached", fmt.Errorf("detached = %q: use %q, %q or, with [scion], %q",
			n.Detached, DetachedExit, DetachedAttach, DetachedStay))
	}
	switch {
	case namer != nil && n.Missing == MissingWait:
		return at.Locate("missing", fmt.Errorf("missing = %q beside [%s]: the router's sockets need the addresses of all its interfaces, use %q",
			n.Missing, table, MissingRefuse))
	case namer != nil:
		n.Missing = MissingRefuse
	case n.Missing == "":
		n.Missing = MissingWait
	case n.Missing != MissingWait && n.Missing != MissingRefuse:
		return at.Locate("missing", fmt.Errorf("missing = %q: use %q or %q", n.Missing, MissingWait, MissingRefuse))
	}
	return nil
}
