// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"fmt"

	"culvert/internal/bpfobj"
	"culvert/internal/filter/filterset"
)

// TesterSets holds the members of sets by name. A set that is in neither map has no members.
type TesterSets struct {
	Prefixes  map[string]*filterset.Prefixes
	Endpoints map[string]filterset.Endpoints
}

// NewTesterWithSets loads a filter with sets of its own. It needs no data plane.
func NewTesterWithSets(f Filter, m TesterSets) (*Tester, error) {
	return newTesterWithSets(f, m, 0)
}

func newTesterWithSets(f Filter, m TesterSets, least int) (*Tester, error) {
	t, state, err := newTester(&filterState{}, nil, f.clone(), least)
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

func (t *Tester) fillSet(s Set, n uint32, m TesterSets) error {
	if s.Endpoints {
		set, err := newEndpoints(m.Endpoints[s.Name])
		if err != nil {
			return err
		}
		defer set.Close()
		return putSet(t.maps[bpfobj.FilterMapFilterEndpoints], n, set)
	}
	p := m.Prefixes[s.Name]
	if p == nil {
		return nil
	}
	image, err := p.Image()
	if err != nil {
		return err
	}
	set, err := newSet(image)
	if err != nil {
		return err
	}
	defer set.Close()
	return putSet(t.maps[bpfobj.FilterMapFilterSets], n, set)
}
