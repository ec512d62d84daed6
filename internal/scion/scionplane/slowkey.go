// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// The slow path keeps the key from the file as long as its process lives. `culvert key` changes only the keys of the fast
// path. After the slow path's key was removed by hand, a packet whose MAC is wrong under all loaded keys may still be
// valid to the slow path. So that a removed key admits no packet, packets with a wrong MAC are not passed up then, nor are
// those of path type EPIC, which only the slow path verifies.

// slowKeyMap is the name of the map with the ID of the slow path's key. The ID is 0 as long as there is none.
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

// SetSlowPathKey notes the key that the slow path verifies hop fields with.
func (p Plane) SetSlowPathKey(key Key) error { return p.noteSlowPathKey(keyID(key)) }

// noteSlowPathKey is SetSlowPathKey for the ID of a key, 0 for none.
func (p Plane) noteSlowPathKey(id uint64) error {
	if err := p.Map(slowKeyMap).Put(uint32(0), id); err != nil {
		return fmt.Errorf("noting the slow path's key of %s: %w", p.Name(), err)
	}
	return p.updateOwnKeyLimits(-1)
}

// slowPathKey returns the ID of the slow path's key, 0 for none.
func (p Plane) slowPathKey() (id uint64) {
	m := p.Map(slowKeyMap)
	if m == nil || m.Lookup(uint32(0), &id) != nil {
		return 0
	}
	return id
}

// SlowPathKey returns the ID, as in KeyInfo, of the slow path's key. If the process has ended, that is its last key. Known
// is false if no process has served the data plane.
func (p Plane) SlowPathKey() (id string, known bool) {
	slow := p.slowPathKey()
	return formatKeyID(slow), slow != 0
}

// ownKeyReasons are the reasons of packets that the slow path forwards if they are valid under its own key.
var ownKeyReasons = []bpfobj.PipelineReason{bpfobj.PipelineReasonPUNT_SCION_MAC, bpfobj.PipelineReasonPUNT_SCION_EPIC}

// updateOwnKeyLimits passes packets of ownKeyReasons up if the slow path's key is loaded, and otherwise none. The key at
// index without counts as removed; -1 is for none.
func (p Plane) updateOwnKeyLimits(without int) error {
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
		// A program that runs during the first write may overwrite it with the old due time. By the second it has ended.
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
