// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"
	"testing"
	"time"
)

// TestKeyScheduleText has a schedule at three times.
func TestKeyScheduleText(t *testing.T) {
	zero := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	at := func(hours int) *time.Time { return bound(zero.Add(time.Duration(hours) * time.Hour)) }
	s := KeySchedule{
		Keys: []ScheduledKey{
			{ID: "aa", NotAfter: at(10), State: keyEnded},
			{ID: "bb", NotBefore: at(4), NotAfter: at(50), State: keyCurrent, Loaded: true},
			{ID: "cc", NotBefore: at(40), NotAfter: at(90), State: keyNext},
		},
		NextSwitch: at(40), Ends: at(90),
	}
	want := []string{
		"key  id aa  ended    until 2026-12-01T10:00:00Z",
		"key  id bb  current  from 2026-12-01T04:00:00Z  until 2026-12-03T02:00:00Z",
		"key  id cc  next     from 2026-12-02T16:00:00Z  until 2026-12-04T18:00:00Z  not loaded",
		"next key in 1d5h",
	}
	if got := s.Text(*at(11)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	r := Router{KeySchedule: &s}
	if got := r.keyText(*at(11)); len(got) != len(want) || got[3] != "  "+want[3] {
		t.Errorf("in status: %q", got)
	}
	s.NextSwitch = nil
	for hours, want := range map[int]string{88: "the last key ends in 2h0m: nothing is forwarded then", 90: "all keys have ended: nothing is forwarded"} {
		if got := s.Text(*at(hours)); got[3] != want {
			t.Errorf("hour %d: %q, want %q", hours, got[3], want)
		}
	}
	s.Ends = nil
	if got := s.Text(*at(0)); len(got) != 3 {
		t.Errorf("without an end: %q", got)
	}
}
