// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	"culvert/internal/datapath"
	"culvert/internal/doctor"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/scion/scionplane"
)

// addOutages adds the links of a SCION router that are down, and the VIPs that have no backend. What cannot be read is left out:
// other findings report that.
func addOutages(o *doctor.Options, inst *datapath.Instance) {
	add := func(check, what, command string) {
		o.Outages = append(o.Outages, doctor.Outage{Router: inst.Name(), Check: check, What: what, Command: command})
	}
	if router := scionplane.Of(inst); isSCION(inst) && inst.Served() {
		links := router.Config().Links
		states, err := router.LinkStates()
		if err != nil || len(states) != len(links) {
			states = nil
		}
		for n, state := range states {
			if l := links[n]; l.Scope != scionplane.ScopeInternal && !state.Up {
				add("scion-link", fmt.Sprintf("SCION link %s is down by BFD: its packets are answered with an error, and nothing goes to %s", l.Name, l.Remote),
					"ping "+l.Remote.Addr().String())
			}
		}
	}
	if plane, err := lbplane.View(inst); err == nil {
		vips, err := lb.Unserved(plane)
		if err != nil {
			return
		}
		for _, v := range vips {
			add("lb-unserved", "no backend takes new flows of VIP "+v.String(), "culvert lb show --on "+inst.Name())
		}
	}
}
