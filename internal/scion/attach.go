// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"culvert/internal/scion/scionplane"
	"culvert/internal/stats"
)

// plane is the eBPF data plane as a DataPlane.
type plane struct{ scionplane.Plane }

// The metrics of all stages are served with the router's.
var _ stats.CollectorSource = plane{}

func (p plane) SetOwnKey(key [16]byte) error {
	if err := p.UseKey(key); err != nil {
		return err
	}
	return p.SetSlowPathKey(key)
}
