// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"errors"
	"maps"
	"testing"
)

type somePorts struct {
	ports []Port
	err   error
}

func (s somePorts) Ports() ([]Port, error) { return s.ports, s.err }

// Only what was dropped for the reason counts, and an interface that has dropped nothing is there with 0.
func TestDropped(t *testing.T) {
	got, err := Dropped(somePorts{ports: []Port{
		{Interface: "eth0", Reasons: []Reason{
			{Name: "scion-interface", Verdict: "drop", Packets: 3}, {Name: "scion-bfd", Verdict: "drop", Packets: 10},
			{Name: "scion-interface", Verdict: "punt", Packets: 100}, {Name: "scion-interface", Verdict: "drop", Packets: 4},
		}},
		{Interface: "eth1", Reasons: []Reason{{Name: "scion-interface", Verdict: "drop", Packets: 1}}},
		{Interface: "eth2"},
	}}, "scion-interface")
	if want := map[string]uint64{"eth0": 7, "eth1": 1, "eth2": 0}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, error %v, want %v", got, err, want)
	}
	gone := errors.New("gone")
	if got, err := Dropped(somePorts{err: gone}, "scion-interface"); !errors.Is(err, gone) || got == nil {
		t.Errorf("got %v, error %v", got, err)
	}
}
