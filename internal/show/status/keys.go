// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"time"

	"culvert/internal/scion/keyring"
	"culvert/internal/scion/scionplane"
)

// KeySchedule is the schedule of the forwarding keys.
type KeySchedule struct {
	// Keys are in the order in which they begin to be valid.
	Keys []ScheduledKey `json:"keys"`
	// NextSwitch is when another key becomes the current one, left out if none does.
	NextSwitch *time.Time `json:"next_switch,omitempty"`
	// Ends is when the last key ends, left out if it does not.
	Ends *time.Time `json:"ends,omitempty"`
}

// The states of a key of a schedule.
const (
	// keyCurrent is the state of the valid key that began last. The slow path makes hop fields with it.
	keyCurrent = "current"
	keyValid   = "valid"
	keyNext    = "next"
	keyEnded   = "ended"
)

// ScheduledKey is a key of a schedule.
type ScheduledKey struct {
	ID string `json:"id"`
	// NotBefore and NotAfter are left out if the key has no such bound.
	NotBefore *time.Time `json:"not_before,omitempty"`
	NotAfter  *time.Time `json:"not_after,omitempty"`
	// State is current, valid, next or ended.
	State string `json:"state"`
	// Loaded tells whether the fast path has the key.
	Loaded bool `json:"loaded"`
}

// Schedule returns the schedule of a router's keys at a time, nil if they follow none.
func Schedule(router scionplane.Plane, now time.Time) (*KeySchedule, error) {
	keys, err := router.Schedule()
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	s := &KeySchedule{}
	spans := make([]keyring.Span, len(keys))
	for i, k := range keys {
		spans[i] = k.Span
	}
	current := keyring.Current(spans, now)
	for i, k := range keys {
		state := keyNext
		switch {
		case i == current:
			state = keyCurrent
		case k.Ended(now):
			state = keyEnded
		case k.Valid(now):
			state = keyValid
		}
		s.Keys = append(s.Keys, ScheduledKey{ID: k.ID, NotBefore: bound(k.NotBefore), NotAfter: bound(k.NotAfter), State: state, Loaded: k.Loaded})
	}
	if when, next := keyring.NextSwitch(spans, now); next >= 0 {
		s.NextSwitch = &when
	}
	s.Ends = bound(keyring.End(spans))
	return s, nil
}

func bound(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// Text returns a line for each key, and one about what comes next.
func (s *KeySchedule) Text(now time.Time) (lines []string) {
	for _, k := range s.Keys {
		line := fmt.Sprintf("key  id %s  %-7s", k.ID, k.State)
		if k.NotBefore != nil {
			line += "  from " + keyring.Text(*k.NotBefore)
		}
		if k.NotAfter != nil {
			line += "  until " + keyring.Text(*k.NotAfter)
		}
		if !k.Loaded && k.State != keyEnded {
			line += "  not loaded"
		}
		lines = append(lines, line)
	}
	switch {
	case s.NextSwitch != nil:
		lines = append(lines, fmt.Sprintf("next key in %s", keyring.Rounded(s.NextSwitch.Sub(now))))
	case s.Ends == nil:
	case s.Ends.After(now):
		lines = append(lines, fmt.Sprintf("the last key ends in %s: nothing is forwarded then", keyring.Rounded(s.Ends.Sub(now))))
	default:
		lines = append(lines, "all keys have ended: nothing is forwarded")
	}
	return lines
}
