// SPDX-License-Identifier: Apache-2.0

package node

import (
	"reflect"
	"testing"

	"culvert/internal/doctor"
	"culvert/internal/stats"
)

// droppingPorts is a router that has dropped so many datagrams of links by interfaces a, b and c.
type droppingPorts [3]uint64

func (d *droppingPorts) Ports() (all []stats.Port, err error) {
	for i, n := range d {
		all = append(all, stats.Port{Interface: string(rune('a' + i)), Reasons: []stats.Reason{
			{Name: "scion-interface", Verdict: "drop", Packets: n}, {Name: "scion-mac", Verdict: "drop", Packets: 1000 * n}}})
	}
	return all, nil
}

// TestStrays reads counters that change while strays waits.
func TestStrays(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, after droppingPorts
		waits         bool
		want          []doctor.Stray
	}{
		{"one counter grows", droppingPorts{7, 0, 9}, droppingPorts{7, 0, 12}, true, []doctor.Stray{{Interface: "c", Router: "br1", Packets: 3}}},
		{"no counter grows", droppingPorts{7, 0, 9}, droppingPorts{7, 0, 9}, true, nil},
		{"nothing was ever dropped", droppingPorts{}, droppingPorts{}, false, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plane, waited := tt.before, false
			wait := func() { plane, waited = tt.after, true }
			if got := strays("br1", &plane, wait); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("found %+v, want %+v", got, tt.want)
			}
			if waited != tt.waits {
				t.Errorf("waited: %t, want %t", waited, tt.waits)
			}
		})
	}
}
