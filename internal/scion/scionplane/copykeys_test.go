// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
)

// TestCopyKeys goes on with the keys of a version whose keys had no times.
func TestCopyKeys(t *testing.T) {
	newMap := func(valueSize int) *ebpf.Map {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(valueSize), MaxEntries: MaxKeys})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	full := binary.Size(bpfobj.PipelineAesCmacKey{})
	want := cmacKey(Key{7})
	raw, err := binary.Append(nil, binary.NativeEndian, want)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{full - 16, full} {
		old, now := newMap(size), newMap(full)
		if err := old.Put(uint32(1), raw[:size]); err != nil {
			t.Fatal(err)
		}
		if k, err := readKey(old, 1); err != nil || k != want {
			t.Errorf("%d bytes: read %+v, %v", size, k, err)
		}
		if err := copyKeys(old, now); err != nil {
			t.Fatal(err)
		}
		var keys [MaxKeys]bpfobj.PipelineAesCmacKey
		for i := range keys {
			if err := now.Lookup(uint32(i), &keys[i]); err != nil {
				t.Fatal(err)
			}
		}
		if keys[1] != want || keys[0].Id != 0 {
			t.Errorf("%d bytes: keys %+v", size, keys)
		}
	}
	if err := copyKeys(newMap(full+8), newMap(full)); err == nil {
		t.Error("an unknown layout was copied")
	}
}
