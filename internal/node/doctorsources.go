// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	"culvert/internal/doctor"
	"culvert/internal/lb/sourcestate"
	"culvert/internal/show/text"
)

// sourceOutages returns the sources of backends whose last answer is not in force: what they had goes on, if they had something.
func sourceOutages(router string, sources []sourcestate.Source) (all []doctor.Outage) {
	for _, s := range sources {
		if !s.Troubled() {
			continue
		}
		all = append(all, doctor.Outage{
			Router: router, Check: "lb-backend-source", Works: s.Backends > 0, Command: fmt.Sprintf("culvert lb show --on %s %s", router, s.VIP),
			What: fmt.Sprintf("source %q of VIP %s is %s, with %s in force: %s", s.Name, s.VIP, s.State, text.Count(uint64(s.Backends), "backend"), s.Why),
		})
	}
	return all
}
