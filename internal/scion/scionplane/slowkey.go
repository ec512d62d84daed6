// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

/*
The slow path has one key, from the file, for as long as its process lives; `culvert key` changes
only the fast path's. So a packet whose MAC is wrong under all loaded keys may be right to the slow
path, once the key it has was removed by hand. Such packets are not passed up then, nor are those of
path type EPIC, which nobody but the slow path verifies: a removed key opens nothing any more.
*/

// slowKeyMap is the name of the map with the ID of the slow path's key, 0 while there is none.
const slowKeyMap = "slow_key"

func newSlowKeyMap() (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: slowKeyMap, Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("creating map %s: %w", slowKeyMap, bpfobj.LoadError(err))
	}
	return m, nil
}

// SetSlowPathKey says which key the slow path verifies hop fields with.
func (p Plane) SetSlowPathKey(key Key) error {
	if err := p.Map(slowKeyMap).Put(uint32(0), keyID(key)); err != nil {
		return fmt.Errorf("noting the slow path's key of %s: %w", p.Name(), err)
	}
	return p.gateRefused(-1)
}

// slowPathKey returns the ID of the key that the slow path has, 0 while it has none.
func (p Plane) slowPathKey() (id uint64) {
	m := p.Map(slowKeyMap)
	if m == nil || m.Lookup(uint32(0), &id) != nil {
		return 0
	}
	return id
}

// SlowPathKey returns the ID, as in KeyInfo, of the key that the slow path has, or had when its
// process ended. It is false when no process has served the instance.
func (p Plane) SlowPathKey() (id string, known bool) {
	slow := p.slowPathKey()
	return formatKeyID(slow), slow != 0
}

// ownKeyReasons are those of packets that the slow path forwards or not by its key alone.
var ownKeyReasons = []bpfobj.PipelineReason{bpfobj.PipelineReasonPUNT_SCION_MAC, bpfobj.PipelineReasonPUNT_SCION_EPIC}

// gateRefused lets packets that the slow path's key decides on up only while the slow path's key is loaded. The key at
// index without, which may be -1 for none, counts as gone.
func (p Plane) gateRefused(without int) error {
	slow := p.slowPathKey()
	if slow == 0 {
		return nil
	}
	loaded, err := p.keyIDs()
	if err != nil {
		return err
	}
	if without >= 0 {
		loaded[without] = 0
	}
	for _, reason := range slices.Repeat(ownKeyReasons, 2) {
		// The second time because a program that was about to write the old due time has done so
		// by then.
		limit := datapath.RateLimit(datapath.PuntRate)
		if !slices.Contains(loaded, slow) {
			limit = datapath.NoPacket()
		}
		if err := p.SetLimit(reason, limit); err != nil {
			return err
		}
	}
	return nil
}
