// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"fmt"

	"culvert/internal/bpfobj"
	"culvert/internal/filter/filterset"
)

// TesterSets are the members of sets by name; a set that is in neither has none.
type TesterSets struct {
	Prefixes  map[string]*filterset.Prefixes
	Endpoints map[string]filterset.Endpoints
}

// NewTesterOf loads a filter with sets of its own, whatever runs.
func NewTesterOf(f Filter, m TesterSets) (*Tester, error) {
	t, state, err := newTester(&loaded{}, nil, f.clone())
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
