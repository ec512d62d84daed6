// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"time"

	"culvert/internal/scion/keyring"
)

// Keys are the forwarding keys of a running SCION router that follow a schedule.
type Keys struct {
	Router string
	// Served tells whether a process serves the router, and loads keys as they are due.
	Served bool
	Keys   []ScheduledKey
}

// ScheduledKey is a key of a schedule.
type ScheduledKey struct {
	ID string
	keyring.Span
	// Loaded tells whether the fast path has the key.
	Loaded bool
}

// keyWarning is how long before the end of the last key there is a warning.
const keyWarning = 7 * 24 * time.Hour

// checkKeys warns when the last key ends soon, and of keys that are not loaded though they are due.
func checkKeys(all []Keys, now time.Time) (found []Finding) {
	for _, r := range all {
		spans := make([]keyring.Span, len(r.Keys))
		for i, k := range r.Keys {
			spans[i] = k.Span
		}
		const mend = "add a [[scion.key]] that begins before, on every router of the AS, and reload; then give the control service the key"
		end := keyring.End(spans)
		switch left := end.Sub(now); {
		case end.IsZero():
		case left <= 0:
			found = append(found, Finding{Status: Fail, Check: "keys", Command: mend,
				Finding: fmt.Sprintf("the last forwarding key of router %s has ended at %s: nothing is forwarded", r.Router, keyring.Text(end))})
		case left < keyWarning:
			found = append(found, Finding{Status: Warn, Check: "keys", Command: mend,
				Finding: fmt.Sprintf("the last forwarding key of router %s ends at %s, in %s", r.Router, keyring.Text(end), keyring.Rounded(left))})
		}
		for _, k := range r.Keys {
			if k.Loaded || k.Ended(now) {
				continue
			}
			f := Finding{Status: Fail, Check: "keys", Command: "culvert run -c FILE",
				Finding: fmt.Sprintf("the forwarding key %s of router %s is valid and not loaded: packets under it are not forwarded", k.ID, r.Router)}
			if r.Served {
				f.Command = "see the log of the process, and 'culvert key list --on " + r.Router + "'"
			}
			if !k.Valid(now) {
				if r.Served {
					continue // it is loaded when another one ends
				}
				f.Status = Warn
				f.Finding = fmt.Sprintf("the forwarding key %s of router %s, valid from %s on, is not loaded, and no process will load it",
					k.ID, r.Router, keyring.Text(k.NotBefore))
			}
			found = append(found, f)
		}
	}
	return found
}
