// SPDX-License-Identifier: Apache-2.0

package scionplane_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// TestReplaceKey checks that a start loads the key of the router's files and removes the files' former key. A key that was
// loaded by hand stays, whatever its index.
func TestReplaceKey(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	hand, first, second := scionplane.Key{1}, scionplane.Key{2}, scionplane.Key{3}
	restart := func(own scionplane.Key) (scionplane.Plane, error) {
		inst := scionbed.Attach(t, scionbed.Config(1), "v0")
		err := inst.ReplaceKey(own)
		if err == nil {
			err = inst.SetSlowPathKey(own)
		}
		return inst, err
	}
	expect := func(inst scionplane.Plane, err error, want ...scionplane.Key) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		ids, err := inst.KeyIDs()
		if err != nil {
			t.Fatal(err)
		}
		for i, k := range want {
			id := uint64(0)
			if k != (scionplane.Key{}) {
				id = scionplane.RawKeyID(k)
			}
			if ids[i] != id {
				t.Fatalf("keys %x, want %x at index %d", ids, id, i)
			}
		}
		inst.Close()
	}
	inst := scionbed.Attach(t, scionbed.Config(1), "v0")
	if err := inst.AddKey(0, hand); err != nil {
		t.Fatal(err)
	}
	inst.Close()
	inst, err := restart(first)
	expect(inst, err, hand, first)
	inst, err = restart(first)
	expect(inst, err, hand, first)
	inst, err = restart(second) // the files have a new key, which replaces their former one
	expect(inst, err, hand, second)

	inst, err = restart(hand) // the files have the key that was loaded by hand
	expect(inst, err, hand, second)
	inst, err = restart(first)
	expect(inst, err, first, second)

	// With both keys loaded by hand none may be replaced.
	inst = scionbed.Attach(t, scionbed.Config(1), "v0")
	if err := inst.RemoveKey(0); err != nil {
		t.Fatal(err)
	}
	if err := inst.AddKey(0, hand); err != nil {
		t.Fatal(err)
	}
	if err := inst.ReplaceKey(scionplane.Key{9}); err == nil {
		t.Error("a key that was loaded by hand was replaced")
	}
	keys, err := inst.Keys()
	if err != nil || !slices.Equal([]int{keys[0].Index, keys[1].Index}, []int{0, 1}) {
		t.Errorf("keys %v, %v", keys, err)
	}
}

// TestReplaceKeyWhileRunning has one process read files with another key twice. Each replaces the one before.
func TestReplaceKeyWhileRunning(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	inst := scionbed.Attach(t, scionbed.Config(1), "v0")
	for _, own := range []scionplane.Key{{1}, {2}, {3}} {
		err := inst.Recommit(func(h *datapath.Instance) error {
			router := scionplane.Of(h)
			return errors.Join(router.UseKey(own), router.SetSlowPathKey(own))
		})
		if err != nil {
			t.Fatal(err)
		}
		ids, err := inst.KeyIDs()
		if err != nil {
			t.Fatal(err)
		}
		loaded := slices.DeleteFunc(slices.Clone(ids), func(id uint64) bool { return id == 0 })
		if !slices.Equal(loaded, []uint64{scionplane.RawKeyID(own)}) {
			t.Errorf("keys %x after the files had %x", ids, scionplane.RawKeyID(own))
		}
	}
}

// TestKeysOfAnotherVersion changes keys by hand in programs of another version. Where the layout of keys differs, it is refused, and the
// keys stay. They are listed if their layout is known.
func TestKeysOfAnotherVersion(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	for _, size := range []int{scionplane.RawKeySize - 16, scionplane.RawKeySize + 8} {
		inst := scionbed.Attach(t, scionbed.Config(1), "v0")
		if err := inst.AddKey(0, scionbed.Key); err != nil {
			t.Fatal(err)
		}
		own := inst.Map(bpfobj.PipelineMapScionKeys)
		raw, err := own.LookupBytes(uint32(0))
		if err != nil {
			t.Fatal(err)
		}
		other, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size), MaxEntries: scionplane.MaxKeys})
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, make([]byte, 8)...)[:size]
		if err := other.Put(uint32(0), raw); err != nil {
			t.Fatal(err)
		}
		inst.AddMap(bpfobj.PipelineMapScionKeys, other)
		for what, err := range map[string]error{"add": inst.AddKey(1, scionplane.Key{7}), "remove": inst.RemoveKey(0)} {
			if err == nil || !strings.Contains(err.Error(), "programs of another version, whose keys have another layout: start or attach it again") {
				t.Errorf("%d bytes: %s: %v", size, what, err)
			}
		}
		if now, err := other.LookupBytes(uint32(0)); err != nil || !bytes.Equal(now, raw) {
			t.Errorf("%d bytes: %x, %v after the refusals, %x before", size, now, err, raw)
		}
		keys, err := inst.Keys()
		if size < scionplane.RawKeySize && (err != nil || len(keys) != 1 || keys[0].ID != scionplane.KeyID(scionbed.Key)) {
			t.Errorf("%d bytes: keys %+v, %v", size, keys, err)
		}
		if size > scionplane.RawKeySize && (err == nil || !strings.Contains(err.Error(), "a layout that this version does not know")) {
			t.Errorf("%d bytes: keys %+v, %v", size, keys, err)
		}
		own.Close()
		inst.Close()
	}
}
