// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"errors"
	"maps"
	"testing"
)

// portSource is a source with interfaces alone, or an error.
type portSource struct {
	ports []Port
	err   error
}

func (s portSource) Ports() ([]Port, error) { return s.ports, s.err }

// Dropped counts only packets dropped for the reason, and has a 0 for an interface that has dropped none.
func TestDropped(t *testing.T) {
	got, err := Dropped(portSource{ports: []Port{
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
	if got, err := Dropped(portSource{err: gone}, "scion-interface"); !errors.Is(err, gone) || got == nil {
		t.Errorf("got %v, error %v", got, err)
	}
}
