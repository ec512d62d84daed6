// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"culvert/internal/bench/peer"
)

// diverter is a device that packets may go through in another way than the row is named after.
type diverter interface {
	// Aside counts such packets by where they went.
	Diverted() (map[string]uint64, error)
}

// NoteDiverted measures a round, and notes how many packets of it went another way.
func NoteDiverted(d peer.Device, round func() (Sample, error)) (Sample, error) {
	counting, ok := d.(diverter)
	if !ok {
		return round()
	}
	before, err := counting.Diverted()
	if err != nil {
		return Sample{}, err
	}
	s, err := round()
	if err != nil {
		return s, err
	}
	after, err := counting.Diverted()
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
