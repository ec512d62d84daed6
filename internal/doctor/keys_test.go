// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"
	"time"

	"culvert/internal/scion/keyring"
)

// TestCheckKeys has schedules that end soon, and keys that are not loaded.
func TestCheckKeys(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	at := func(hours int) time.Time { return now.Add(time.Duration(hours) * time.Hour) }
	key := func(loaded bool, s keyring.Span) ScheduledKey { return ScheduledKey{ID: "aa", Span: s, Loaded: loaded} }
	const week = 7 * 24
	for _, c := range []struct {
		name    string
		served  bool
		keys    []ScheduledKey
		status  Status
		finding string // "" for none
	}{
		{"none", true, nil, OK, ""},
		{"no end", true, []ScheduledKey{key(true, keyring.Span{NotAfter: at(1)}), key(true, keyring.Span{})}, OK, ""},
		{"more than a week", true, []ScheduledKey{key(true, keyring.Span{NotAfter: at(week)})}, OK, ""},
		{"less than a week", true, []ScheduledKey{key(true, keyring.Span{NotAfter: at(week - 1)})}, Warn, "the last forwarding key of router br1 ends at 2026-12-07T23:00:00Z, in 6d23h"},
		{"ended", true, []ScheduledKey{key(true, keyring.Span{NotAfter: now})}, Fail, "the last forwarding key of router br1 has ended at 2026-12-01T00:00:00Z: nothing is forwarded"},
		{"ended ones need not be loaded", true, []ScheduledKey{key(false, keyring.Span{NotAfter: now}), key(true, keyring.Span{})}, OK, ""},
		{"a later one is not loaded yet", true, []ScheduledKey{key(true, keyring.Span{}), key(false, keyring.Span{NotBefore: at(1)})}, OK, ""},
		{"a later one, and no process", false, []ScheduledKey{key(true, keyring.Span{}), key(false, keyring.Span{NotBefore: at(1)})}, Warn, "is not loaded, and no process will load it"},
		{"a valid one is not loaded", true, []ScheduledKey{key(true, keyring.Span{}), key(false, keyring.Span{NotBefore: now})}, Fail, "is valid and not loaded"},
	} {
		found := checkKeys([]Keys{{Router: "br1", Served: c.served, Keys: c.keys}}, now)
		switch {
		case c.finding == "" && len(found) != 0 && len(c.keys) > 0:
			t.Errorf("%s: %+v", c.name, found)
		case c.finding != "" && (len(found) != 1 || found[0].Status != c.status || !strings.Contains(found[0].Finding, c.finding) || found[0].Command == ""):
			t.Errorf("%s: %+v, want %v: %s", c.name, found, c.status, c.finding)
		}
	}
}
