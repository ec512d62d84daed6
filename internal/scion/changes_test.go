// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/scion/keyring"
	"culvert/internal/stage"
)

// TestKeyChanges checks what is said about a changed schedule of keys.
func TestKeyChanges(t *testing.T) {
	begin := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	key := func(id string, from, until time.Time) keyring.Key {
		return keyring.Key{ID: id, Span: keyring.Span{NotBefore: from, NotAfter: until}}
	}
	var c stage.Changes
	keyChanges(&c, []keyring.Key{key("old", time.Time{}, begin), key("stays", begin, time.Time{})},
		[]keyring.Key{key("stays", begin, begin.Add(time.Hour)), key("new", begin.Add(time.Minute), time.Time{})})
	if want := []string{
		"SCION forwarding key old removed (from the beginning until 2026-11-01T00:00:00Z)",
		"SCION forwarding key stays: from 2026-11-01T00:00:00Z without an end → from 2026-11-01T00:00:00Z until 2026-11-01T01:00:00Z",
		"SCION forwarding key new added (from 2026-11-01T00:01:00Z without an end)",
	}; !slices.Equal(c, want) {
		t.Errorf("%q, want %q", c, want)
	}
}

// TestChanges checks what is said about a changed configuration before it comes into force.
func TestChanges(t *testing.T) {
	b := &reloadBed{twoHosts: &twoHosts{t: t}}
	const one = `{"underlay": {"local": "192.0.2.1:50001", "remote": "192.0.2.2:50001"}`
	base := []string{wire(1, 1, true), wire(2, 2, true)}
	edit := func(old, new string) string {
		path := b.write("110", "", base...)
		topology := filepath.Join(filepath.Dir(path), "topology.json")
		text, err := os.ReadFile(topology)
		check(t, err)
		if !strings.Contains(string(text), old) {
			t.Fatalf("no %s in %s", old, text)
		}
		check(t, os.WriteFile(topology, []byte(strings.Replace(string(text), old, new, 1)), 0o600))
		return path
	}
	for _, c := range []struct {
		name string
		path string
		file Table
		want []string
	}{
		{"nothing", b.write("110", "", base...), Table{}, nil},
		{"added", b.write("110", "", append(base, wire(3, 3, true))...), Table{},
			[]string{"SCION link 3 added: 192.0.2.1:50003 - 192.0.2.2:50003"}},
		{"removed", b.write("110", "", base[0]), Table{}, []string{"SCION link 2 removed"}},
		{"renumbered", b.write("110", "", wire(1, 1, true), wire(22, 2, true)), Table{}, []string{"SCION link 2 becomes link 22"}},
		{"one goes, another gets its number", b.write("110", "", wire(1, 2, true)), Table{}, []string{"SCION link 1 removed", "SCION link 2 becomes link 1"}},
		{"other addresses", b.write("110", "", base[0], wire(2, 7, true)), Table{},
			[]string{"SCION link 2: local 192.0.2.1:50002 → 192.0.2.1:50007", "SCION link 2: remote 192.0.2.2:50002 → 192.0.2.2:50007"}},
		{"BFD", b.write("110", "", base[0], wire(2, 2, false)), Table{}, []string{"SCION link 2: BFD on → off"}},
		{"BFD timers", edit(`"disable": false`, `"disable": false, "detect_mult": 5`), Table{}, []string{"SCION link 1: BFD timers changed"}},
		{"neighbor", edit(one+`, "isd_as": "1-ff00:0:111"`, one+`, "isd_as": "1-ff00:0:112"`), Table{},
			[]string{"SCION link 1: neighbor 1-ff00:0:111 → 1-ff00:0:112"}},
		{"ports", edit("31000-32767", "31000-31999"), Table{}, []string{"SCION dispatched ports: 31000-32767 → 31000-31999"}},
		{"what the router does not need", edit(`"mtu": 1472, "disp`, `"mtu": 1400, "disp`), Table{},
			[]string{"SCION topology: changes that this router does not need"}},
		{"settings", b.write("110", reloadMetrics+"[log.console]\nlevel = \"debug\"\n", base...), Table{BFDMinTTL: 255, DebugHTTP: true},
			[]string{"scion.bfd_min_ttl: 0 → 255", "scion.debug_http: false → true", "SCION metrics.prometheus: off → 127.0.0.1:30442", "SCION log.console.level: info → debug"}},
	} {
		was, err := newPlan(Table{Config: b.write("110", "", base...)})
		check(t, err)
		c.file.Config = c.path
		is, err := newPlan(c.file)
		check(t, err)
		is.router.Path = was.router.Path
		if got := is.Changes(was, nil); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
