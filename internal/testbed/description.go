// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
)

// EditDescription changes the description that is pinned with data plane name of this network namespace, as if another version
// of culvert had written it. The data plane must have one generation. change gets the description as decoded JSON.
func EditDescription(t testing.TB, name string, change func(map[string]any)) {
	t.Helper()
	if err := ChangeDescription(filepath.Join(SpaceDir(t), name), change); err != nil {
		t.Fatal(err)
	}
}

// ChangeDescription is EditDescription for the data plane whose pins are in a directory.
func ChangeDescription(dir string, change func(map[string]any)) error {
	pins, err := filepath.Glob(filepath.Join(dir, "*", "meta"))
	if err != nil || len(pins) != 1 {
		return fmt.Errorf("descriptions %v, %w", pins, err)
	}
	old, err := ebpf.LoadPinnedMap(pins[0], nil)
	if err != nil {
		return err
	}
	defer old.Close()
	b, err := old.LookupBytes(uint32(0))
	if err != nil {
		return err
	}
	d := make(map[string]any)
	decoder := json.NewDecoder(bytes.NewReader(bytes.TrimRight(b, "\x00")))
	decoder.UseNumber()
	if err := decoder.Decode(&d); err != nil {
		return err
	}
	change(d)
	if b, err = json.Marshal(d); err != nil {
		return err
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "meta", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(b)), MaxEntries: 1})
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.Put(uint32(0), b); err != nil {
		return err
	}
	if err := os.Remove(pins[0]); err != nil {
		return err
	}
	return m.Pin(pins[0])
}
