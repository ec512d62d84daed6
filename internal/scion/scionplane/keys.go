// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// MaxKeys is how many forwarding keys may be loaded at a time. Their indexes are 0 to MaxKeys-1.
const MaxKeys = 2

// KeyInfo identifies a loaded key without revealing it.
type KeyInfo struct {
	Index int `json:"index"`
	// ID is a hash of the key in hexadecimal. It is the same on all routers with the key.
	ID string `json:"id"`
	// NotBefore and NotAfter are when the key is valid, left out if it has no bound.
	NotBefore *time.Time `json:"not_before,omitempty"`
	NotAfter  *time.Time `json:"not_after,omitempty"`
}

// AddKey loads a forwarding key at an index. It is an error if another key is loaded there. A hop field is valid if it is
// valid under any loaded key.
func (p Plane) AddKey(index int, key Key) error {
	return p.addKey(index, cmacKey(key))
}

func (p Plane) addKey(index int, k bpfobj.PipelineAesCmacKey) error {
	m, err := p.keySlot(index)
	if err != nil {
		return err
	}
	var old bpfobj.PipelineAesCmacKey
	if err := m.Lookup(uint32(index), &old); err != nil {
		return fmt.Errorf("reading key %d of %s: %w", index, p.Name(), err)
	}
	if old == k {
		return nil
	}
	if old.Id == k.Id { // its times change
		if err := m.Put(uint32(index), k); err != nil {
			return fmt.Errorf("writing the times of key %d of %s: %w", index, p.Name(), err)
		}
		return nil
	}
	if old.Id != 0 {
		return fmt.Errorf("key %d of %s is in use: remove it first, or use index %d",
			index, p.Name(), 1-index)
	}
	// A slot counts once its ID is set, so write the ID last.
	id := k.Id
	k.Id = 0
	if err := m.Put(uint32(index), k); err != nil {
		return fmt.Errorf("writing key %d of %s: %w", index, p.Name(), err)
	}
	k.Id = id
	if err := m.Put(uint32(index), k); err != nil {
		return fmt.Errorf("enabling key %d of %s: %w", index, p.Name(), err)
	}
	return p.updateOwnKeyLimits(-1)
}

// ReplaceKey loads the key from the router's files, unless it is loaded already. It replaces the key that was loaded from the
// files before, by this process or an earlier one, or goes to a free index if there is none. Keys that were loaded by hand stay. If an index
// is free, hop fields of both keys are valid while one replaces the other.
func (p Plane) ReplaceKey(key Key) error {
	loaded, err := p.keyIDs()
	if err != nil || slices.Contains(loaded, keyID(key)) {
		return err
	}
	free := slices.Index(loaded, 0)
	own := p.slowPathKey() // since the files were read last, in this generation
	if part := datapath.PartOf[*Part](p.Instance); own == 0 && part != nil {
		own = part.formerKey
	}
	former := -1
	if own != 0 {
		former = slices.Index(loaded, own)
	}
	switch {
	case former < 0 && free < 0:
		return fmt.Errorf("both keys of %s were loaded by hand, and neither is the one in its files: "+
			"remove one with 'culvert key del'", p.Name())
	case former < 0:
		return p.AddKey(free, key)
	case free >= 0:
		if err := p.AddKey(free, key); err != nil {
			return err
		}
	}
	if err := p.RemoveKey(former); err != nil {
		return err
	}
	if err := p.AddKey(former, key); err != nil || free < 0 {
		return err
	}
	return p.RemoveKey(free)
}

// RemoveKey removes the forwarding key at an index. It is an error if there is none.
func (p Plane) RemoveKey(index int) error {
	m, err := p.keySlot(index)
	if err != nil {
		return err
	}
	var k bpfobj.PipelineAesCmacKey
	if err := m.Lookup(uint32(index), &k); err != nil {
		return fmt.Errorf("reading key %d of %s: %w", index, p.Name(), err)
	}
	if k.Id == 0 {
		return fmt.Errorf("%s has no key %d: see 'culvert key list --on %s'", p.Name(), index, p.Name())
	}
	if err := p.updateOwnKeyLimits(index); err != nil {
		return err
	}
	k.Id = 0
	if err := m.Put(uint32(index), k); err != nil {
		return fmt.Errorf("disabling key %d of %s: %w", index, p.Name(), err)
	}
	if err := m.Put(uint32(index), bpfobj.PipelineAesCmacKey{}); err != nil {
		return fmt.Errorf("clearing key %d of %s: %w", index, p.Name(), err)
	}
	return nil
}

// Keys returns the loaded keys in the order of their indexes.
func (p Plane) Keys() ([]KeyInfo, error) {
	slots, err := p.keySlots()
	if err != nil {
		return nil, err
	}
	var keys []KeyInfo
	for index, k := range slots {
		if k.Id == 0 {
			continue
		}
		info := KeyInfo{Index: index, ID: formatKeyID(k.Id)}
		span := spanOf(k.NotBefore, k.NotAfter)
		if !span.NotBefore.IsZero() {
			info.NotBefore = &span.NotBefore
		}
		if !span.NotAfter.IsZero() {
			info.NotAfter = &span.NotAfter
		}
		keys = append(keys, info)
	}
	return keys, nil
}

func formatKeyID(id uint64) string { return fmt.Sprintf("%016x", id) }

// keyIDs returns the ID of the key at each index, 0 for none.
func (p Plane) keyIDs() ([]uint64, error) {
	slots, err := p.keySlots()
	if err != nil {
		return nil, err
	}
	ids := make([]uint64, MaxKeys)
	for index, k := range slots {
		ids[index] = k.Id
	}
	return ids, nil
}

// keySlots returns the entries of the programs' map of keys, which another version may have made.
func (p Plane) keySlots() (slots [MaxKeys]bpfobj.PipelineAesCmacKey, err error) {
	m := p.Map(bpfobj.PipelineMapScionKeys)
	if m == nil {
		return slots, p.otherLayout()
	}
	for index := range slots {
		if slots[index], err = readKey(m, uint32(index)); err != nil {
			return slots, fmt.Errorf("reading key %d of %s: %w", index, p.Name(), err)
		}
	}
	return slots, nil
}

// keySlot checks an index and returns the map of the keys, for writing. It returns an error if another version has loaded the
// programs and gives the entries another layout, or the reasons, whose limits change with the keys, other numbers.
func (p Plane) keySlot(index int) (*ebpf.Map, error) {
	if index < 0 || index >= MaxKeys {
		return nil, fmt.Errorf("key index %d: use 0 or %d", index, MaxKeys-1)
	}
	m := p.Map(bpfobj.PipelineMapScionKeys)
	if m == nil || int(m.ValueSize()) != binary.Size(bpfobj.PipelineAesCmacKey{}) {
		return nil, p.otherLayout()
	}
	return m, p.SameReasons()
}

func (p Plane) otherLayout() error {
	return fmt.Errorf("%s runs programs of another version, whose keys have another layout: start or attach it again with this one", p.Name())
}
