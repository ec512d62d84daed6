// SPDX-License-Identifier: Apache-2.0

package scionplane

import "culvert/internal/bpfobj"

// What tests outside of the package, which use scionbed, need of it.

// MinCounters is minCounters.
const MinCounters = minCounters

// KeyID is keyID.
func KeyID(key Key) uint64 { return keyID(key) }

// KeyIDs is keyIDs.
func (p Plane) KeyIDs() ([]uint64, error) { return p.keyIDs() }

// RawHop is a next hop as it stands in maps.
func RawHop(nh NextHop) bpfobj.PipelineNextHop { return nh.raw() }
