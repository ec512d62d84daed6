// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/filter/filterset"
)

// setMaps are the names of the maps that hold the members of sets.
var setMaps = []string{bpfobj.FilterMapFilterSets, bpfobj.FilterMapFilterEndpoints}

// Members holds the members of a set, of one type or the other. The other one is nil.
type Members struct {
	Prefixes  *filterset.Prefixes
	Endpoints filterset.Endpoints
}

// putMembers makes members set n, which no program reads yet.
func putMembers(maps map[string]*ebpf.Map, n uint32, members Members) (err error) {
	sets := maps[bpfobj.FilterMapFilterSets]
	var m *ebpf.Map
	if members.Prefixes != nil {
		image, err := members.Prefixes.Image()
		if err != nil {
			return err
		}
		m, err = newSet(image)
		if err != nil {
			return err
		}
	} else {
		sets = maps[bpfobj.FilterMapFilterEndpoints]
		if m, err = newEndpoints(members.Endpoints); err != nil {
			return err
		}
	}
	defer m.Close()
	return putSet(sets, n, m)
}

// Prefixes returns the members of a set of prefixes. Prefixes that touch and expire at the same time are joined.
func Prefixes(inst *datapath.Instance, set string) (*filterset.Prefixes, error) {
	p, done, err := read(inst)
	if err != nil {
		return nil, err
	}
	defer done()
	n, err := p.set(set, false)
	if err != nil {
		return nil, err
	}
	return readPrefixes(p.maps[bpfobj.FilterMapFilterSets], n)
}

// Endpoints returns the members of a set of addresses with ports.
func Endpoints(inst *datapath.Instance, set string) (filterset.Endpoints, error) {
	p, done, err := read(inst)
	if err != nil {
		return nil, err
	}
	defer done()
	n, err := p.set(set, true)
	if err != nil {
		return nil, err
	}
	return readEndpoints(p.maps[bpfobj.FilterMapFilterEndpoints], n)
}

// EditPrefixes changes the members of a set of prefixes in one step. Change gets the present members, without expired ones, and
// returns the new ones. The set does not change if it returns an error.
func EditPrefixes(inst *datapath.Instance, set string, change func(*filterset.Prefixes) (*filterset.Prefixes, error)) error {
	return editSet(inst, set, false, func(sets *ebpf.Map, n uint32) (*ebpf.Map, error) {
		p, err := readPrefixes(sets, n)
		if err != nil {
			return nil, err
		}
		p.Expire(Now())
		if p, err = change(p); err != nil {
			return nil, err
		}
		image, err := p.Image()
		if err != nil {
			return nil, err
		}
		return newSet(image)
	})
}

// EditEndpoints is EditPrefixes for a set of addresses with ports.
func EditEndpoints(inst *datapath.Instance, set string, change func(filterset.Endpoints) (filterset.Endpoints, error)) error {
	return editSet(inst, set, true, func(sets *ebpf.Map, n uint32) (*ebpf.Map, error) {
		e, err := readEndpoints(sets, n)
		if err != nil {
			return nil, err
		}
		e.Expire(Now())
		if e, err = change(e); err != nil {
			return nil, err
		}
		return newEndpoints(e)
	})
}

// editSet replaces the map of a set by the one that newMap makes of it, given the map of sets and the set's number.
func editSet(inst *datapath.Instance, set string, endpoints bool, newMap func(*ebpf.Map, uint32) (*ebpf.Map, error)) error {
	return inst.Edit(func(now *datapath.Instance) error {
		p, done, err := read(now)
		if err != nil {
			return err
		}
		defer done()
		n, err := p.set(set, endpoints)
		if err != nil {
			return err
		}
		sets := p.maps[bpfobj.FilterMapFilterSets]
		if endpoints {
			sets = p.maps[bpfobj.FilterMapFilterEndpoints]
		}
		m, err := newMap(sets, n)
		if err != nil {
			return fmt.Errorf("set %s: %w", set, err)
		}
		defer m.Close()
		if err := putSet(sets, n, m); err != nil {
			return fmt.Errorf("set %s: %w", set, err)
		}
		return nil
	})
}

// set returns the number of a set, which has to be of that type.
func (p *plane) set(name string, endpoints bool) (uint32, error) {
	s := p.state.Filter.set(name)
	n, ok := p.state.Sets[name]
	if s == nil || !ok {
		return 0, fmt.Errorf("there is no set %s: see 'culvert filter set list'", name)
	}
	if s.Endpoints != endpoints {
		kind := map[bool]string{false: "prefixes", true: "addresses with ports"}
		return 0, fmt.Errorf("set %s has %s, not %s", name, kind[!endpoints], kind[endpoints])
	}
	return uint32(n), nil
}

// readPrefixes returns the members of set n. A set that never had members has no map.
func readPrefixes(sets *ebpf.Map, n uint32) (*filterset.Prefixes, error) {
	image, err := readSet(sets, n)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return &filterset.Prefixes{}, nil
	}
	if err != nil {
		return nil, err
	}
	return filterset.Decode(image)
}

// readEndpoints is readPrefixes for a set of addresses with ports.
func readEndpoints(sets *ebpf.Map, n uint32) (filterset.Endpoints, error) {
	e, err := endpointsIn(sets, n)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return make(filterset.Endpoints), nil
	}
	return e, err
}

// dropSet frees the members of set n, which no program reads any more. It is no error if it has none.
func dropSet(maps map[string]*ebpf.Map, n uint32) error {
	var errs []error
	for _, name := range setMaps {
		errs = append(errs, deleteSet(maps[name], n))
	}
	return errors.Join(errs...)
}
