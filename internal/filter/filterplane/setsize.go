// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/filter/filterset"
)

// setSizes holds the numbers of entries of sets, by their names. Counting a million entries takes a good part of a second, and
// whoever asks for metrics asks again and again.
type setSizes map[string]setSize

// setSize is the number of entries in a map. A set that changes gets another map.
type setSize struct {
	id      ebpf.MapID // 0 for a set that never had members
	entries int
	// again is when the number has to be counted again because entries have expired; zero for never.
	again time.Time
}

// recount is the least time from one count of the same map to the next.
const recount = 10 * time.Second

// count returns the numbers of entries of the sets of p that have not expired.
func (s setSizes) count(p *plane) (map[string]int, error) {
	now := time.Now()
	entries := make(map[string]int)
	for _, set := range p.state.Filter.Sets {
		size, err := s[set.Name].next(p, set, now)
		if err != nil {
			return nil, err
		}
		s[set.Name] = size
		entries[set.Name] = size.entries
	}
	for name := range s {
		if _, ok := entries[name]; !ok {
			delete(s, name)
		}
	}
	return entries, nil
}

// next returns the size that the set has now.
func (s setSize) next(p *plane, set Set, now time.Time) (setSize, error) {
	m := p.maps[bpfobj.FilterMapFilterSets]
	if set.Endpoints {
		m = p.maps[bpfobj.FilterMapFilterEndpoints]
	}
	n, err := p.set(set.Name, set.Endpoints)
	if err != nil {
		return s, err
	}
	var id ebpf.MapID
	if err := m.Lookup(n, &id); errors.Is(err, ebpf.ErrKeyNotExist) {
		return setSize{}, nil
	} else if err != nil {
		return s, fmt.Errorf("looking up set %s: %w", set.Name, err)
	}
	if id == s.id && (s.again.IsZero() || now.Before(s.again)) {
		return s, nil
	}
	size := setSize{id: id}
	var expires time.Duration
	if set.Endpoints {
		size.entries, expires, err = endpointsSize(m, n)
	} else {
		size.entries, expires, err = prefixesSize(m, n)
	}
	if expires > 0 {
		size.again = now.Add(max(expires, recount))
	}
	return size, err
}

// prefixesSize returns the number of prefixes in set n, and after how long the next one expires, 0 if none does.
func prefixesSize(sets *ebpf.Map, n uint32) (int, time.Duration, error) {
	p, err := readPrefixes(sets, n)
	if err != nil {
		return 0, 0, err
	}
	now := Now()
	p.Expire(now)
	return p.Len(), p.Next(now), nil
}

// endpointsSize is prefixesSize for a set of addresses with ports.
func endpointsSize(sets *ebpf.Map, n uint32) (int, time.Duration, error) {
	e, err := readEndpoints(sets, n)
	if err != nil {
		return 0, 0, err
	}
	now := Now()
	e.Expire(now)
	next := filterset.Never
	for _, until := range e {
		next = min(next, until)
	}
	return len(e), next.Until(now), nil
}
