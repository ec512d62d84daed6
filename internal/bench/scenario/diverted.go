// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"culvert/internal/bench/peer"
)

// diverter is a device through which packets can take another path than the one that the row is about.
type diverter interface {
	// Diverted counts such packets, by a phrase that says what happened to them.
	Diverted() (map[string]uint64, error)
}

// NoteDiverted measures a round, and adds a note to the sample if packets took another path.
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
