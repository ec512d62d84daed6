// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"culvert/internal/bench/peer"
)

// straying is a device that packets may go through in another way than the row is named after.
type straying interface {
	// Aside counts such packets by where they went.
	Aside() (map[string]uint64, error)
}

// NoteAside measures a round, and notes how many packets of it went another way.
func NoteAside(d peer.Device, round func() (Sample, error)) (Sample, error) {
	counting, ok := d.(straying)
	if !ok {
		return round()
	}
	before, err := counting.Aside()
	if err != nil {
		return Sample{}, err
	}
	s, err := round()
	if err != nil {
		return s, err
	}
	after, err := counting.Aside()
	if err != nil {
		return s, err
	}
	for _, where := range slices.Sorted(maps.Keys(after)) {
		if n := after[where] - before[where]; n > 0 {
			note := fmt.Sprintf("%d of %d packets of the last round were %s", n, s.Sent, where)
			s.Note = strings.TrimPrefix(s.Note+"; "+note, "; ")
		}
	}
	return s, nil
}
