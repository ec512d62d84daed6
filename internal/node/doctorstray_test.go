// SPDX-License-Identifier: Apache-2.0

package node

import (
	"reflect"
	"testing"

	"culvert/internal/doctor"
	"culvert/internal/stats"
)

// droppingPorts is a router that has dropped datagrams by three interfaces.
type droppingPorts [3]uint64

func (d *droppingPorts) Ports() (all []stats.Port, err error) {
	for i, n := range d {
		all = append(all, stats.Port{Interface: string(rune('a' + i)), Reasons: []stats.Reason{
			{Name: "scion-interface", Verdict: "drop", Packets: n}, {Name: "scion-mac", Verdict: "drop", Packets: 1000 * n}}})
	}
	return all, nil
}

// Doctor is told of interfaces whose count grows, not of those that counted once, and waits for none if nothing was dropped.
func TestStrays(t *testing.T) {
	d := droppingPorts{7, 0, 9}
	grow := func() { d = droppingPorts{7, 0, 12} }
	if got, want := strays("br1", &d, grow), []doctor.Stray{{Interface: "c", Router: "br1", Packets: 3}}; !reflect.DeepEqual(got, want) {
		t.Errorf("found %+v, want %+v", got, want)
	}
	if got := strays("br1", &d, func() {}); got != nil {
		t.Errorf("found %+v where nothing grows", got)
	}
	if got := strays("br1", &droppingPorts{}, func() { t.Error("waited, though nothing was dropped ever") }); got != nil {
		t.Errorf("found %+v where nothing was dropped", got)
	}
}
