// SPDX-License-Identifier: Apache-2.0

package doctor

import "fmt"

// Missing is an interface that a running data plane was told to be on and is not.
type Missing struct {
	Interface string
	Router    string
	// Exists tells whether there is an interface of that name, Detached whether the program was taken off it by hand.
	Exists, Detached bool
	// Renamed is what the interface that it is on instead is called now, Moved tells that this is in another network
	// namespace.
	Renamed string
	Moved   bool
	// Served tells whether a process keeps the data plane, and attaches to interfaces that appear.
	Served bool
}

// checkMissing says what packets by an interface go without.
func checkMissing(missing []Missing) []Finding {
	var found []Finding
	for _, m := range missing {
		f := Finding{Status: Fail, Check: "attached", Interface: m.Interface}
		what := fmt.Sprintf("culvert is not on %s, as router %s was told to be: ", m.Interface, m.Router)
		again := fmt.Sprintf("culvert run -c FILE, or culvert attach -c FILE %s", m.Interface)
		switch {
		case m.Detached:
			f.Status = Warn // somebody wanted it so
			f.Finding = what + "it was detached; no stage sees its packets"
			f.Command = "restart the process of router " + m.Router
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

// remade says how there came to be another interface of that name.
func (m Missing) remade() string {
	switch {
	case m.Renamed != "":
		return "it was renamed to " + m.Renamed + ", and another interface made"
	case m.Moved:
		return "it was moved to another network namespace, and another interface made"
	}
	return "it was deleted and made again"
}

// absent says why there is none.
func (m Missing) absent() string {
	if m.Moved {
		return "it was moved to another network namespace, so here it does not exist"
	}
	return "it does not exist"
}

// checkUnread says that a part of the other checks is missing.
func checkUnread(err error) []Finding {
	if err == nil {
		return nil
	}
	return []Finding{{Status: Fail, Check: "attached", Finding: "what runs cannot be read, and was not looked at: " + err.Error()}}
}
