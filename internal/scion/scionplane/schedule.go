// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/scion/keyring"
)

// scheduleMap is the name of the map with the schedule of the keys of the process that served last. Programs do not use it: each
// loaded key has its own times. The map is for commands, which show it, and for the next process. ID 0 is no entry.
const scheduleMap = "key_schedule"

// MostScheduled is how many keys a schedule may have.
const MostScheduled = 16

// scheduled is an entry of scheduleMap. The times are as in the programs' keys.
type scheduled struct {
	ID, NotBefore, NotAfter uint64
}

func newScheduleMap() (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: scheduleMap, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(binary.Size(scheduled{})), MaxEntries: MostScheduled,
	})
	if err != nil {
		return nil, fmt.Errorf("creating map %s: %w", scheduleMap, bpfobj.LoadError(err))
	}
	return m, nil
}

// KeyID returns the ID of a key, as in KeyInfo.
func KeyID(key Key) string { return formatKeyID(keyID(key)) }

// timesOf returns a span as the programs have it.
func timesOf(s keyring.Span) (notBefore, notAfter uint64) {
	notAfter = never
	if !s.NotBefore.IsZero() {
		notBefore = uint64(max(s.NotBefore.UnixNano(), 0))
	}
	if !s.NotAfter.IsZero() {
		notAfter = uint64(max(s.NotAfter.UnixNano(), 0))
	}
	return notBefore, notAfter
}

// spanOf is the reverse of timesOf.
func spanOf(notBefore, notAfter uint64) (s keyring.Span) {
	if notBefore != 0 {
		s.NotBefore = time.Unix(0, int64(notBefore)).UTC()
	}
	if notAfter != never {
		s.NotAfter = time.Unix(0, int64(notAfter)).UTC()
	}
	return s
}

// ScheduledKey is a key of a schedule.
type ScheduledKey struct {
	ID string
	keyring.Span
	// Loaded tells whether the fast path has the key.
	Loaded bool
}

// Schedule returns the keys that follow a schedule, in the order in which they begin. It is empty if the router has a key without
// bounds, or only keys that were loaded by hand.
func (p Plane) Schedule() ([]ScheduledKey, error) {
	loaded, err := p.keyIDs()
	if err != nil {
		return nil, err
	}
	entries := p.schedule()
	keys := make([]ScheduledKey, len(entries))
	for i, e := range entries {
		keys[i] = ScheduledKey{ID: formatKeyID(e.ID), Span: spanOf(e.NotBefore, e.NotAfter), Loaded: slices.Contains(loaded, e.ID)}
	}
	return keys, nil
}

// schedule returns the entries of scheduleMap.
func (p Plane) schedule() (entries []scheduled) {
	if p.Instance == nil {
		return nil
	}
	m := p.Map(scheduleMap)
	if m == nil {
		return nil // the data plane is of a version without schedules
	}
	for i := range m.MaxEntries() {
		var e scheduled
		if m.Lookup(i, &e) == nil && e.ID != 0 {
			entries = append(entries, e)
		}
	}
	return entries
}

// scheduledIDs returns the IDs of the keys that follow a schedule.
func (p Plane) scheduledIDs() (ids []uint64) {
	for _, e := range p.schedule() {
		ids = append(ids, e.ID)
	}
	return ids
}

// CheckSchedule returns an error if a key that was loaded by hand would take the place of one of the schedule.
func (p Plane) CheckSchedule(keys []keyring.Key) error {
	loaded, err := p.keyIDs()
	if err != nil {
		return err
	}
	known := append(p.scheduledIDs(), p.slowPathKey())
	if part := datapath.PartOf[*Part](p.Instance); part != nil {
		known = append(known, part.formerKey)
	}
	for _, k := range keys {
		known = append(known, keyID(k.Secret))
	}
	for index, id := range loaded {
		if id != 0 && !slices.Contains(known, id) {
			return fmt.Errorf("key %d of %s, %s, was loaded by hand and is not in the schedule: add it there, or 'culvert key del %[1]d --on %[2]s'",
				index, p.Name(), formatKeyID(id))
		}
	}
	return nil
}

// ScheduleKeys loads the keys of a schedule whose time has not passed, as many as there is room for, each with its times, and
// removes the others. Keys are in the order in which they begin. Further calls, with the time then, follow the schedule. It is an
// error if a key is loaded that is neither in the schedule nor of the process before.
func (p Plane) ScheduleKeys(keys []keyring.Key, now time.Time) error {
	if len(keys) > MostScheduled {
		return fmt.Errorf("%d keys: a schedule has at most %d", len(keys), MostScheduled)
	}
	if err := p.CheckSchedule(keys); err != nil {
		return err
	}
	var wanted []bpfobj.PipelineAesCmacKey
	for _, k := range keys {
		if !k.Ended(now) && len(wanted) < MaxKeys {
			e := cmacKey(k.Secret)
			e.NotBefore, e.NotAfter = timesOf(k.Span)
			wanted = append(wanted, e)
		}
	}
	// The keys that go are known as the process's until the others are loaded.
	entries := entriesOf(keys)
	both := slices.Clone(entries)
	for _, e := range p.schedule() {
		if len(both) < MostScheduled && !slices.ContainsFunc(both, func(n scheduled) bool { return n.ID == e.ID }) {
			both = append(both, e)
		}
	}
	if err := p.writeSchedule(both); err != nil {
		return err
	}
	if err := p.loadKeys(wanted); err != nil {
		return err
	}
	return p.writeSchedule(entries)
}

// UseKey loads a key that follows no schedule. Behind a schedule it removes all other keys: those are the schedule's, since none is
// loaded by hand beside one. Otherwise it is ReplaceKey, and keys that were loaded by hand stay.
func (p Plane) UseKey(key Key) error {
	if len(p.schedule()) == 0 {
		return p.ReplaceKey(key)
	}
	if err := p.loadKeys([]bpfobj.PipelineAesCmacKey{cmacKey(key)}); err != nil {
		return err
	}
	return p.writeSchedule(nil)
}

func entriesOf(keys []keyring.Key) []scheduled {
	entries := make([]scheduled, len(keys))
	for i, k := range keys {
		entries[i].ID = keyID(k.Secret)
		entries[i].NotBefore, entries[i].NotAfter = timesOf(k.Span)
	}
	return entries
}

// loadKeys makes the loaded keys those that are wanted. A key keeps its index. Where there is room, new keys come before old ones
// go.
func (p Plane) loadKeys(wanted []bpfobj.PipelineAesCmacKey) error {
	loaded, err := p.keyIDs()
	if err != nil {
		return err
	}
	isWanted := func(id uint64) bool {
		return slices.ContainsFunc(wanted, func(k bpfobj.PipelineAesCmacKey) bool { return k.Id == id })
	}
	for _, k := range wanted {
		index := slices.Index(loaded, k.Id)
		if index < 0 {
			index = slices.Index(loaded, 0)
		}
		if index < 0 {
			index = slices.IndexFunc(loaded, func(id uint64) bool { return !isWanted(id) })
			if err := p.RemoveKey(index); err != nil {
				return err
			}
		}
		if err := p.addKey(index, k); err != nil {
			return err
		}
		loaded[index] = k.Id
	}
	for index, id := range loaded {
		if id != 0 && !isWanted(id) {
			if err := p.RemoveKey(index); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeSchedule writes the map of the schedule.
func (p Plane) writeSchedule(entries []scheduled) error {
	m := p.Map(scheduleMap)
	for i := range MostScheduled {
		var e scheduled
		if i < len(entries) {
			e = entries[i]
		}
		if err := m.Put(uint32(i), e); err != nil {
			return fmt.Errorf("writing the schedule of the keys of %s: %w", p.Name(), err)
		}
	}
	return nil
}

// copyKeys copies keys from a data plane whose map may have the layout of another version.
func copyKeys(from, to *ebpf.Map) error {
	if from == nil {
		return nil
	}
	for index := range min(from.MaxEntries(), to.MaxEntries()) {
		k, err := readKey(from, index)
		if err != nil {
			return fmt.Errorf("copying key %d: %w", index, err)
		}
		if err := to.Put(index, k); err != nil {
			return fmt.Errorf("copying key %d: %w", index, err)
		}
	}
	return nil
}

// readKey returns an entry of a map of keys. Another version may have made the map: the times are at the end, or not there.
func readKey(m *ebpf.Map, index uint32) (k bpfobj.PipelineAesCmacKey, err error) {
	raw, err := m.LookupBytes(index)
	switch {
	case err != nil:
		return k, err
	case raw == nil:
		return k, ebpf.ErrKeyNotExist
	}
	full := binary.Size(k)
	if len(raw) == full-2*8 {
		raw = binary.NativeEndian.AppendUint64(raw, 0)
		raw = binary.NativeEndian.AppendUint64(raw, never)
	}
	if len(raw) != full {
		return k, errors.New("the keys of the running data plane have a layout that this version does not know: detach it first")
	}
	_, err = binary.Decode(raw, binary.NativeEndian, &k)
	return k, err
}
