// SPDX-License-Identifier: Apache-2.0

package scionplane_test

import (
	"errors"
	"slices"
	"testing"

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
