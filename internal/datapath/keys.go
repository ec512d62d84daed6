// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
)

// MaxKeys is how many forwarding keys may be loaded at a time; the index of a key is below it.
const MaxKeys = 2

// KeyInfo tells of a loaded key without giving it away.
type KeyInfo struct {
	Index int `json:"index"`
	// ID is the same for the same key, and can be compared across routers of an AS.
	ID string `json:"id"`
}

// AddKey loads a forwarding key. Hop fields valid under any loaded key are good.
func (i *Instance) AddKey(index int, key Key) error {
	m, err := i.keySlot(index)
	if err != nil {
		return err
	}
	var old bpfobj.PipelineAesCmacKey
	if err := m.Lookup(uint32(index), &old); err != nil {
		return fmt.Errorf("reading key %d of %s: %w", index, i.Name(), err)
	}
	k := cmacKey(key)
	if old.Id == k.Id {
		return nil
	}
	if old.Id != 0 {
		return fmt.Errorf("key %d of %s is in use: remove it first, or use index %d",
			index, i.Name(), 1-index)
	}
	// A slot counts once its ID is set, so write the ID last.
	id := k.Id
	k.Id = 0
	if err := m.Put(uint32(index), k); err != nil {
		return fmt.Errorf("writing key %d of %s: %w", index, i.Name(), err)
	}
	k.Id = id
	if err := m.Put(uint32(index), k); err != nil {
		return fmt.Errorf("enabling key %d of %s: %w", index, i.Name(), err)
	}
	return i.gateRefused(-1)
}

// ReplaceKey makes sure that the key from the router's files is loaded: where it is already, else in
// place of the one that came from the files before, else at a free index. Keys that were loaded by
// hand stay. While two keys change places both are good if there is an index to spare.
func (i *Instance) ReplaceKey(key Key) error {
	loaded, err := i.keyIDs()
	if err != nil || slices.Contains(loaded, keyID(key)) {
		return err
	}
	free := slices.Index(loaded, 0)
	former := -1
	if p := PartOf[*SCIONPart](i); p != nil && p.formerKey != 0 {
		former = slices.Index(loaded, p.formerKey)
	}
	switch {
	case former < 0 && free < 0:
		return fmt.Errorf("both keys of %s were loaded by hand, and neither is the one in its files: "+
			"remove one with 'culvert key del'", i.Name())
	case former < 0:
		return i.AddKey(free, key)
	case free >= 0:
		if err := i.AddKey(free, key); err != nil {
			return err
		}
	}
	if err := i.RemoveKey(former); err != nil {
		return err
	}
	if err := i.AddKey(former, key); err != nil || free < 0 {
		return err
	}
	return i.RemoveKey(free)
}

// RemoveKey forgets a forwarding key.
func (i *Instance) RemoveKey(index int) error {
	m, err := i.keySlot(index)
	if err != nil {
		return err
	}
	var k bpfobj.PipelineAesCmacKey
	if err := m.Lookup(uint32(index), &k); err != nil {
		return fmt.Errorf("reading key %d of %s: %w", index, i.Name(), err)
	}
	if k.Id == 0 {
		return fmt.Errorf("%s has no key %d: see 'culvert key list --on %s'", i.Name(), index, i.Name())
	}
	if err := i.gateRefused(index); err != nil {
		return err
	}
	k.Id = 0
	if err := m.Put(uint32(index), k); err != nil {
		return fmt.Errorf("disabling key %d of %s: %w", index, i.Name(), err)
	}
	if err := m.Put(uint32(index), bpfobj.PipelineAesCmacKey{}); err != nil {
		return fmt.Errorf("clearing key %d of %s: %w", index, i.Name(), err)
	}
	return nil
}

// Keys lists the loaded keys.
func (i *Instance) Keys() ([]KeyInfo, error) {
	ids, err := i.keyIDs()
	if err != nil {
		return nil, err
	}
	var keys []KeyInfo
	for index, id := range ids {
		if id != 0 {
			keys = append(keys, KeyInfo{Index: index, ID: formatKeyID(id)})
		}
	}
	return keys, nil
}

func formatKeyID(id uint64) string { return fmt.Sprintf("%016x", id) }

// keyIDs returns what is loaded at each index, 0 for nothing.
func (i *Instance) keyIDs() ([]uint64, error) {
	ids := make([]uint64, MaxKeys)
	for index := range ids {
		var k bpfobj.PipelineAesCmacKey
		if err := i.maps[bpfobj.PipelineMapScionKeys].Lookup(uint32(index), &k); err != nil {
			return nil, fmt.Errorf("reading key %d of %s: %w", index, i.Name(), err)
		}
		ids[index] = k.Id
	}
	return ids, nil
}

func (i *Instance) keySlot(index int) (*ebpf.Map, error) {
	if index < 0 || index >= MaxKeys {
		return nil, fmt.Errorf("key index %d: use 0 to %d", index, MaxKeys-1)
	}
	return i.maps[bpfobj.PipelineMapScionKeys], nil
}
