// SPDX-License-Identifier: Apache-2.0

package scionplane_test

import (
	"slices"
	"testing"
	"time"

	"culvert/internal/scion/keyring"
	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// TestKeep changes what a commit changes, and brings it back: keys with their indexes and times, the schedule, the slow path's key,
// and the interfaces of links.
func TestKeep(t *testing.T) {
	testbed.InNamespace(t)
	dev := testbed.AddVeth(t, "v0", "v1")
	p := scionbed.Attach(t, scionbed.Config(1), "v0")
	defer p.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// state returns all of it.
	state := func() []any {
		t.Helper()
		keys, err := p.Keys()
		must(err)
		var all []any
		for _, k := range keys {
			all = append(all, k.Index, k.ID, k.NotBefore != nil, k.NotAfter != nil)
		}
		schedule, err := p.Schedule()
		must(err)
		for _, k := range schedule {
			all = append(all, k)
		}
		slow, known := p.SlowPathKey()
		refused, err := p.Refused()
		must(err)
		for _, links := range refused {
			all = append(all, links)
		}
		return append(all, slow, known)
	}
	zero := time.Now().Truncate(time.Hour).UTC()
	scheduled := []keyring.Key{
		{Secret: scionplane.Key{2}, Span: keyring.Span{NotAfter: zero.Add(10 * time.Hour)}},
		{Secret: scionplane.Key{3}, Span: keyring.Span{NotBefore: zero.Add(4 * time.Hour)}},
	}
	for _, tt := range []struct {
		name           string
		before, change func() error
	}{
		{"none before", func() error { return nil }, func() error { return p.ReplaceKey(scionplane.Key{1}) }},
		{"a key", func() error { return p.AddKey(1, scionplane.Key{1}) }, func() error {
			must(p.SetLinkAccept(1, scionplane.Accept{Devices: []int{dev.Index}}))
			must(p.RemoveKey(1))
			must(p.AddKey(0, scionplane.Key{9}))
			return p.SetSlowPathKey(scionplane.Key{9})
		}},
		{"a key, and a schedule instead", func() error { return p.SetSlowPathKey(scionplane.Key{1}) }, func() error { return p.ScheduleKeys(scheduled, zero) }},
		{"a schedule", func() error { return p.ScheduleKeys(scheduled, zero) }, func() error { return p.UseKey(scionplane.Key{7}) }},
	} {
		must(tt.before())
		before := state()
		back, err := p.Keep()
		must(err)
		must(tt.change())
		if slices.Equal(state(), before) {
			t.Fatalf("%s: nothing has changed", tt.name)
		}
		must(back())
		if now := state(); !slices.Equal(now, before) {
			t.Errorf("%s: it is\n%v\nand was\n%v", tt.name, now, before)
		}
	}
}
