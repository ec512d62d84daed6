// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"encoding/binary"

	"culvert/internal/bpfobj"
)

// The exports of this file are for tests in package scionplane_test, which use scionbed.

// MinCounters is minCounters.
const MinCounters = minCounters

// RawKeyID is keyID.
func RawKeyID(key Key) uint64 { return keyID(key) }

// KeyIDs is keyIDs.
func (p Plane) KeyIDs() ([]uint64, error) { return p.keyIDs() }

// RawKeySize is the size of an entry of the programs' map of keys.
var RawKeySize = binary.Size(bpfobj.PipelineAesCmacKey{})

// Refused is refused.
func (p Plane) Refused() ([]uint64, error) { return p.refused() }

// RawHop returns a next hop as it is in maps.
func RawHop(nh NextHop) bpfobj.PipelineNextHop { return nh.raw() }
