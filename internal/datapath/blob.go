// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"

	"culvert/internal/bpfobj"

	"github.com/cilium/ebpf"
)

// blobMap returns a new map with b as its only entry. Zeros may follow b when it is read back.
func blobMap(name string, b []byte) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(b)), MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("creating map %s: %w", name, bpfobj.LoadError(err))
	}
	if err := m.Put(uint32(0), b); err != nil {
		m.Close()
		return nil, fmt.Errorf("writing map %s: %w", name, err)
	}
	return m, nil
}

// blobFromPin reads the entry of a map that blobMap has made.
func blobFromPin(path string) ([]byte, error) {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	b, err := m.LookupBytes(uint32(0))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return b, nil
}
