// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"

	"culvert/internal/bpfobj"
	"culvert/internal/filter/filterset"
)

// FilterTesterSets are the members of sets by name; a set that is in neither has none.
type FilterTesterSets struct {
	Prefixes  map[string]*filterset.Prefixes
	Endpoints map[string]filterset.Endpoints
}

// NewFilterTesterOf loads a filter with sets of its own, whatever runs.
func NewFilterTesterOf(f Filter, m FilterTesterSets) (*FilterTester, error) {
	t, state, err := newFilterTester(&filterState{}, nil, f.clone())
	if err != nil {
		return nil, err
	}
	for _, s := range f.Sets {
		if err := t.fillSet(s, uint32(state.Sets[s.Name]), m); err != nil {
			t.Close()
			return nil, fmt.Errorf("set %s: %w", s.Name, err)
		}
	}
	return t, nil
}

func (t *FilterTester) fillSet(s FilterSet, n uint32, m FilterTesterSets) error {
	if s.Endpoints {
		set, err := newFilterEndpoints(m.Endpoints[s.Name])
		if err != nil {
			return err
		}
		defer set.Close()
		return putFilterSet(t.maps[bpfobj.FilterMapFilterEndpoints], n, set)
	}
	p := m.Prefixes[s.Name]
	if p == nil {
		return nil
	}
	image, err := p.Image()
	if err != nil {
		return err
	}
	set, err := newFilterSet(image)
	if err != nil {
		return err
	}
	defer set.Close()
	return putFilterSet(t.maps[bpfobj.FilterMapFilterSets], n, set)
}
