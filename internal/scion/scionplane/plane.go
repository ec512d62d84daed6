// SPDX-License-Identifier: Apache-2.0

// Package scionplane is the SCION router's part of the data plane: its maps, their sizes and their meaning.
package scionplane

import (
	"fmt"

	"culvert/internal/datapath"
)

// Plane is the SCION router of a data plane, beside what every data plane has.
type Plane struct{ *datapath.Instance }

// Of returns the SCION router of a data plane. Config tells whether there is one.
func Of(inst *datapath.Instance) Plane { return Plane{inst} }

// Config returns what the SCION router was loaded with, nothing if it is off.
func (p Plane) Config() Config {
	if s := datapath.Saved[state](p.Instance, Stage, stateVersion); s != nil {
		return s.Config
	}
	return Config{}
}

// linkSlots gives the slots of the links' counters, by name.
func (p Plane) linkSlots() map[string]int {
	if s := datapath.Saved[state](p.Instance, Stage, stateVersion); s != nil {
		return s.Counters
	}
	return nil
}

func (p Plane) checkLink(link int) error {
	if n := len(p.Config().Links); link < 0 || link >= n {
		return fmt.Errorf("link %d of %s: there are %d", link, p.Name(), n)
	}
	return nil
}
