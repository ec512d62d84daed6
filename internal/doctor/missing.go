// SPDX-License-Identifier: Apache-2.0

package doctor

import "fmt"

// Missing is an interface that a running data plane was told to be on and is not.
type Missing struct {
	Interface string
	Router    string
	// Exists tells whether there is an interface of that name, Detached whether the program was taken off it by hand.
	Exists, Detached bool
	// Served tells whether a process keeps the data plane, and attaches to interfaces that appear.
	Served bool
}

// checkMissing says what packets by an interface go without.
func checkMissing(missing []Missing) []Finding {
	var found []Finding
	for _, m := range missing {
		f := Finding{Status: Fail, Check: "attached", Interface: m.Interface}
		what := fmt.Sprintf("culvert is not on %s, as router %s was told to be: ", m.Interface, m.Router)
		again := fmt.Sprintf("culvert run -c FILE, or culvert attach FILE %s", m.Interface)
		switch {
		case m.Detached:
			f.Status = Warn // somebody wanted it so
			f.Finding = what + "it was detached; no stage sees its packets"
			f.Command = "restart the process of router " + m.Router
			if !m.Served {
				f.Command = again
			}
		case m.Exists && m.Served:
			f.Finding = what + "it was made again and cannot be attached to; the log of the process says why"
		case m.Exists:
			f.Finding = what + "it was deleted and made again; no stage sees its packets"
			f.Command = again
		case m.Served:
			f.Finding = what + "it does not exist; the process attaches when it does"
			f.Command = "ip link show " + m.Interface
		default:
			f.Finding = what + "it does not exist, and no process waits for it"
			f.Command = again
		}
		found = append(found, f)
	}
	return found
}
