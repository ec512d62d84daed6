// SPDX-License-Identifier: Apache-2.0

package doctor

import "fmt"

// Missing is an interface to which a running data plane should be attached and is not.
type Missing struct {
	Interface string
	// Router is the name of the data plane.
	Router string
	// Exists tells whether there is an interface of that name.
	Exists bool
	// Detached tells whether the program was detached by hand.
	Detached bool
	// Renamed is the present name of the interface that had this name when the program was attached to it, "" if it was not
	// renamed. Moved tells whether that interface is in another network namespace now.
	Renamed string
	Moved   bool
	// Served tells whether a process serves the data plane, and attaches it to interfaces that appear.
	Served bool
}

// checkMissing has a finding for each missing interface.
func checkMissing(missing []Missing) []Finding {
	var found []Finding
	for _, m := range missing {
		f := Finding{Status: Fail, Check: "attached", Interface: m.Interface}
		what := fmt.Sprintf("data plane %s is not attached to %s, as it should be: ", m.Router, m.Interface)
		again := fmt.Sprintf("culvert run -c FILE, or culvert attach -c FILE %s", m.Interface)
		switch {
		case m.Detached:
			f.Status = Warn // it was detached on purpose
			f.Finding = what + "it was detached; no stage sees its packets"
			f.Command = "restart the process of data plane " + m.Router
			if !m.Served {
				f.Command = again
			}
		case m.Exists && m.Served:
			f.Finding = what + m.remade() + ", which cannot be attached to; the log of the process says why"
		case m.Exists:
			f.Finding = what + m.remade() + "; no stage sees its packets"
			f.Command = again
		case m.Served:
			f.Finding = what + m.absent() + "; the process attaches when it does"
			f.Command = "ip link show " + m.Interface
		default:
			f.Finding = what + m.absent() + ", and no process waits for it"
			f.Command = again
		}
		found = append(found, f)
	}
	return found
}

// remade says why the interface of that name is another one than before.
func (m Missing) remade() string {
	switch {
	case m.Renamed != "":
		return "it was renamed to " + m.Renamed + ", and another interface made"
	case m.Moved:
		return "it was moved to another network namespace, and another interface made"
	}
	return "it was deleted and made again"
}

// absent says why there is no interface of that name.
func (m Missing) absent() string {
	if m.Moved {
		return "it was moved to another network namespace, so here it does not exist"
	}
	return "it does not exist"
}

// checkUnread reports that the running data planes could not be read, so that the other checks know nothing of them.
func checkUnread(err error) []Finding {
	if err == nil {
		return nil
	}
	return []Finding{{Status: Fail, Check: "attached", Finding: "the running data planes cannot be read, and were not examined: " + err.Error()}}
}
