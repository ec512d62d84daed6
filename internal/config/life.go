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

// checkLife fills in defaults. The error comes with the key it is about.
func (n *Node) checkLife() (key string, err error) {
	if n.Detached == "" {
		n.Detached = DetachedExit
		if n.SCION != nil {
			n.Detached = DetachedStay
		}
	}
	switch n.Detached {
	case DetachedExit, DetachedAttach:
	case DetachedStay:
		if n.SCION == nil {
			return "detached", fmt.Errorf("detached = %q without [scion]: there is nothing to go on with, use %q or %q",
				n.Detached, DetachedExit, DetachedAttach)
		}
	default:
		return "detached", fmt.Errorf("detached = %q: use %q, %q or, with [scion], %q",
			n.Detached, DetachedExit, DetachedAttach, DetachedStay)
	}
	switch {
	case n.SCION != nil && n.Missing == MissingWait:
		return "missing", fmt.Errorf("missing = %q beside [scion]: the router's sockets need the addresses of all its interfaces, use %q",
			n.Missing, MissingRefuse)
	case n.SCION != nil:
		n.Missing = MissingRefuse
	case n.Missing == "":
		n.Missing = MissingWait
	case n.Missing != MissingWait && n.Missing != MissingRefuse:
		return "missing", fmt.Errorf("missing = %q: use %q or %q", n.Missing, MissingWait, MissingRefuse)
	}
	return "", nil
}
