// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"maps"
	"slices"
	"testing"
)

// bondRows are the rows of the table that bonds go through, too.
var bondRows = []string{"forwarded", "punted", "dropped", "changed", "scion", "back", "tags", "adopt", "detach", "mtu", "down"}

// TestBonds tries bonds. All its parts have one bed, since cards are put into bonds once.
func TestBonds(t *testing.T) {
	b := newBondBed(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *bed)
	}{
		{"rows", bondStages}, {"spreads", bondSpreads}, {"standby", bondStandby}, {"room", bondRoom}, {"lacp", bondLACP}, {"followed", bondFollowed},
		{"lost", bondMemberLost}, {"changes", bondChangesDuringAttach}, {"refused", bondRefused},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, b) })
	}
}

// bondStages has all stages on bonds, as TestDrivers has them on cards.
func bondStages(t *testing.T, b *bed) {
	for _, driver := range slices.Sorted(maps.Keys(b.ports)) {
		t.Run(driver, func(t *testing.T) {
			in, out := b.pair(t, driver)
			m := &trial{T: t, bed: b, driver: driver, in: in, out: out, mode: "native"}
			for _, row := range bondRows {
				t.Run(row, func(t *testing.T) {
					one := *m
					one.T = t
					if outcome := trials[row](&one); outcome != "yes" {
						t.Errorf("%s: %s, want yes", row, outcome)
					}
				})
			}
			b.detach(t)
		})
	}
}
