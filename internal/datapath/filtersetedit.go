// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/filter/filterset"
)

// filterSetMaps are those that hold the members of sets.
var filterSetMaps = []string{bpfobj.FilterMapFilterSets, bpfobj.FilterMapFilterEndpoints}

// FilterMembers are what a set has: one of the two.
type FilterMembers struct {
	Prefixes  *filterset.Prefixes
	Endpoints filterset.Endpoints
}

// putFilterMembers puts members into the place of a set that no program asks for yet.
func putFilterMembers(maps map[string]*ebpf.Map, n uint32, members FilterMembers) (err error) {
	sets := maps[bpfobj.FilterMapFilterSets]
	var m *ebpf.Map
	if members.Prefixes != nil {
		image, err := members.Prefixes.Image()
		if err != nil {
			return err
		}
		m, err = newFilterSet(image)
		if err != nil {
			return err
		}
	} else {
		sets = maps[bpfobj.FilterMapFilterEndpoints]
		if m, err = newFilterEndpoints(members.Endpoints); err != nil {
			return err
		}
	}
	defer m.Close()
	return putFilterSet(sets, n, m)
}

// FilterPrefixes reads the members of a set of prefixes. What was put in next to each other comes out together.
func (i *Instance) FilterPrefixes(set string) (*filterset.Prefixes, error) {
	p, done, err := i.readFilter()
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

// FilterEndpoints reads the members of a set of addresses with ports.
func (i *Instance) FilterEndpoints(set string) (filterset.Endpoints, error) {
	p, done, err := i.readFilter()
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

// EditFilterPrefixes changes the members of a set of prefixes, at once. The function gets them as they are, without
// those whose time is over, and returns them as they are to be.
func (i *Instance) EditFilterPrefixes(set string, change func(*filterset.Prefixes) (*filterset.Prefixes, error)) error {
	return i.editFilterSet(set, false, func(sets *ebpf.Map, n uint32) (*ebpf.Map, error) {
		p, err := readPrefixes(sets, n)
		if err != nil {
			return nil, err
		}
		p.Expire(FilterSetNow())
		if p, err = change(p); err != nil {
			return nil, err
		}
		image, err := p.Image()
		if err != nil {
			return nil, err
		}
		return newFilterSet(image)
	})
}

// EditFilterEndpoints is the same for a set of addresses with ports.
func (i *Instance) EditFilterEndpoints(set string, change func(filterset.Endpoints) (filterset.Endpoints, error)) error {
	return i.editFilterSet(set, true, func(sets *ebpf.Map, n uint32) (*ebpf.Map, error) {
		e, err := readEndpoints(sets, n)
		if err != nil {
			return nil, err
		}
		e.Expire(FilterSetNow())
		if e, err = change(e); err != nil {
			return nil, err
		}
		return newFilterEndpoints(e)
	})
}

func (i *Instance) editFilterSet(set string, endpoints bool, make func(*ebpf.Map, uint32) (*ebpf.Map, error)) error {
	if i.temporary {
		i.mu.Lock()
		defer i.mu.Unlock()
	} else {
		unlock, err := lockEdits(i.dir)
		if err != nil {
			return err
		}
		defer unlock()
	}
	p, done, err := i.readFilter()
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
	m, err := make(sets, n)
	if err != nil {
		return fmt.Errorf("set %s: %w", set, err)
	}
	defer m.Close()
	if err := putFilterSet(sets, n, m); err != nil {
		return fmt.Errorf("set %s: %w", set, err)
	}
	return nil
}

// set returns the number of a set of a kind.
func (p *filterPlane) set(name string, endpoints bool) (uint32, error) {
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

// readPrefixes reads a set that may have no members yet.
func readPrefixes(sets *ebpf.Map, n uint32) (*filterset.Prefixes, error) {
	image, err := readFilterSet(sets, n)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return &filterset.Prefixes{}, nil
	}
	if err != nil {
		return nil, err
	}
	return filterset.Decode(image)
}

func readEndpoints(sets *ebpf.Map, n uint32) (filterset.Endpoints, error) {
	e, err := readFilterEndpoints(sets, n)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return make(filterset.Endpoints), nil
	}
	return e, err
}

// dropFilterSet frees the members of a number that no program asks for any more.
func dropFilterSet(maps map[string]*ebpf.Map, n uint32) error {
	var errs []error
	for _, name := range filterSetMaps {
		errs = append(errs, deleteFilterSet(maps[name], n))
	}
	return errors.Join(errs...)
}
