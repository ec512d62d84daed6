// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/filter/filterset"
)

// The maps of bpf/filter/set.h. Each set is a map of its own, and an entry of an array of maps. To replace a set is to replace
// that entry, so that a packet meets the old set or the new one. The kernel frees the old one when no program reads it any more.

// maxSets is how many sets of each kind there can be.
const maxSets = 256

// Now returns the present time on the clock of the programs, CLOCK_BOOTTIME, from which the timeouts of sets are counted.
func Now() filterset.Time {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err) // each kernel that can load the programs has this clock
	}
	return filterset.TimeOf(time.Duration(now.Nano()))
}

// newSet returns a new map with a set of prefixes, given its image (filterset.Prefixes.Image).
func newSet(image []byte) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "filter_set", Type: ebpf.Array, KeySize: 4, ValueSize: filterset.LineSize,
		MaxEntries: uint32(len(image) / filterset.LineSize),
		Flags:      unix.BPF_F_INNER_MAP | unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return nil, fmt.Errorf("making a set of %d MB: %w", len(image)>>20, err)
	}
	b, err := mapSet(m, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		m.Close()
		return nil, err
	}
	copy(b, image)
	return m, unix.Munmap(b)
}

// mapSet maps a set of prefixes into memory, up to the end of a page. The caller unmaps it.
func mapSet(m *ebpf.Map, prot int) ([]byte, error) {
	page := unix.Getpagesize()
	size := int(m.MaxEntries()) * filterset.LineSize
	b, err := unix.Mmap(m.FD(), 0, (size+page-1)/page*page, prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping a set of %d MB: %w", size>>20, err)
	}
	return b, nil
}

// putSet makes a set number n of filter_sets or filter_endpoints. It replaces the one before in one step. The caller may close
// set afterwards.
func putSet(sets *ebpf.Map, n uint32, set *ebpf.Map) error {
	if err := sets.Put(n, set); err != nil {
		return fmt.Errorf("writing set %d: %w", n, err)
	}
	return nil
}

// deleteSet removes set n from sets and frees it. It is no error if there is no set n.
func deleteSet(sets *ebpf.Map, n uint32) error {
	if err := sets.Delete(n); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("deleting set %d: %w", n, err)
	}
	return nil
}

// openSet opens set n. The error wraps ebpf.ErrKeyNotExist if there is no set n.
func openSet(sets *ebpf.Map, n uint32) (*ebpf.Map, error) {
	// A set that is replaced between the two calls no longer exists. Then look up the new one.
	for tries := 0; ; tries++ {
		var id ebpf.MapID
		err := sets.Lookup(n, &id)
		if err == nil {
			var set *ebpf.Map
			if set, err = ebpf.NewMapFromID(id); err == nil {
				return set, nil
			}
			if errors.Is(err, unix.ENOENT) && tries < 100 {
				continue
			}
		}
		return nil, fmt.Errorf("opening set %d: %w", n, err)
	}
}

// readSet returns the image of set n, which has prefixes, for filterset.Decode.
func readSet(sets *ebpf.Map, n uint32) ([]byte, error) {
	m, err := openSet(sets, n)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	b, err := mapSet(m, unix.PROT_READ)
	if err != nil {
		return nil, err
	}
	image := append([]byte(nil), b[:int(m.MaxEntries())*filterset.LineSize]...)
	return image, unix.Munmap(b)
}

// rawEndpoint is struct filter_endpoint.
type rawEndpoint struct {
	Addr [16]byte
	Port [2]byte // network order
	IP   byte    // 4 or 6
	_    byte
}

// ipVersion returns the field ip of struct flow_keys for packets with such an address: 4 or 6.
func ipVersion(a netip.Addr) uint8 {
	if a.Is4() {
		return 4
	}
	return 6
}

// newEndpoints returns a new map with a set of addresses with ports.
func newEndpoints(set filterset.Endpoints) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "filter_endpoints", Type: ebpf.Hash, KeySize: 20, ValueSize: 4,
		MaxEntries: uint32(max(len(set), 1)),
	})
	if err != nil {
		return nil, fmt.Errorf("making a set of %d addresses with ports: %w", len(set), err)
	}
	if len(set) == 0 {
		return m, nil
	}
	keys, ends := make([]rawEndpoint, 0, len(set)), make([]filterset.Time, 0, len(set))
	for at, end := range set {
		key := rawEndpoint{Addr: at.Addr().As16(), IP: ipVersion(at.Addr())}
		binary.BigEndian.PutUint16(key.Port[:], at.Port())
		keys, ends = append(keys, key), append(ends, end)
	}
	if _, err := m.BatchUpdate(keys, ends, nil); err != nil {
		m.Close()
		return nil, fmt.Errorf("filling a set of %d addresses with ports: %w", len(set), err)
	}
	return m, nil
}

// endpointsIn returns the members of set n, which has addresses with ports.
func endpointsIn(sets *ebpf.Map, n uint32) (filterset.Endpoints, error) {
	m, err := openSet(sets, n)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	set := make(filterset.Endpoints)
	batch := min(int(m.MaxEntries()), 1<<16)
	keys, ends := make([]rawEndpoint, batch), make([]filterset.Time, batch)
	for cursor := new(ebpf.MapBatchCursor); ; {
		got, err := m.BatchLookup(cursor, keys, ends, nil)
		for n := range got {
			addr := netip.AddrFrom16(keys[n].Addr)
			if keys[n].IP == 4 {
				addr = addr.Unmap()
			}
			set[netip.AddrPortFrom(addr, binary.BigEndian.Uint16(keys[n].Port[:]))] = ends[n]
		}
		switch {
		case errors.Is(err, ebpf.ErrKeyNotExist):
			return set, nil
		case err != nil:
			return nil, fmt.Errorf("reading set %d: %w", n, err)
		}
	}
}
