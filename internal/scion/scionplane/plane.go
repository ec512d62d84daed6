// SPDX-License-Identifier: Apache-2.0

// Package scionplane is the SCION router's part of the data plane: it sizes, fills and reads the router's maps.
package scionplane

import (
	"fmt"

	"culvert/internal/datapath"
)

// Plane is a data plane with its SCION router.
type Plane struct{ *datapath.Instance }

// Of returns the SCION router of a data plane. If the router is off, its Config has no links.
func Of(inst *datapath.Instance) Plane { return Plane{inst} }

// Routes tells whether a data plane has a SCION router.
func Routes(inst *datapath.Instance) bool { return len(Of(inst).Config().Links) > 0 }

// Config returns the configuration that the SCION router was loaded with, the zero value if it is off.
func (p Plane) Config() Config {
	if s := datapath.Saved[state](p.Instance, Stage, stateVersion); s != nil {
		return s.Config
	}
	return Config{}
}

// linkSlots returns the slot of each link's counters by the link's name.
func (p Plane) linkSlots() map[string]int {
	if s := datapath.Saved[state](p.Instance, Stage, stateVersion); s != nil {
		return s.Counters
	}
	return nil
}

// checkLink refuses an index that is none of a link.
func (p Plane) checkLink(link int) error {
	if n := len(p.Config().Links); link < 0 || link >= n {
		return fmt.Errorf("link %d of %s: there are %d", link, p.Name(), n)
	}
	return nil
}
