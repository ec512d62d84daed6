// SPDX-License-Identifier: Apache-2.0

package scion

import "culvert/internal/scion/scionplane"

// plane is the eBPF data plane as the router wants it.
type plane struct{ scionplane.Plane }

func (p plane) SetOwnKey(key [16]byte) error {
	if err := p.ReplaceKey(key); err != nil {
		return err
	}
	return p.SetSlowPathKey(key)
}
