// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"maps"
	"path/filepath"
	"testing"

	"culvert/internal/datapath"
	"culvert/internal/scion/keyring"
	"culvert/internal/scion/scionplane"
)

// TestDiscriminatorsStay takes the oldest key out of the schedule and restarts: each link's session has the discriminator that it had,
// also after a time without a process. It is not the one that is derived from the key that is the oldest one now.
func TestDiscriminatorsStay(t *testing.T) {
	b := &reloadBed{twoHosts: newTwoHosts(t)}
	toml, dir := b.write("110", "", wire(1, 1, true), wire(2, 2, true), wire(3, 3, false)), keyFiles(t)
	key := func(name string, s keyring.Span) KeyTable { return KeyTable{File: filepath.Join(dir, name), span: s} }
	now := clock().Add(-1e12)
	older, newer := key("a.key", keyring.Span{}), key("b.key", keyring.Span{NotBefore: now})
	newest := key("d.key", keyring.Span{NotBefore: now.Add(1e9)})
	load := func(keys ...KeyTable) *plan {
		t.Helper()
		p, err := newPlan(Table{Config: toml, Key: keys})
		check(t, err)
		return p
	}
	attach := func(p *plan, part datapath.Part) {
		t.Helper()
		_, on, err := p.Place(nil)
		check(t, err)
		inst, err := datapath.Attach(datapath.Options{Name: p.router.ID(), Interfaces: on, Parts: []datapath.Part{part}})
		check(t, err)
		inst.Close()
	}
	// start starts a process, ends it, and returns the discriminators of its sessions.
	start := func(keys ...KeyTable) map[string]uint32 {
		t.Helper()
		p := load(keys...)
		f, err := p.prepare(t.Context(), nil, nil)
		check(t, err)
		attach(p, f.Part())
		discs := make(map[string]uint32)
		for _, g := range f.slow.gates {
			discs[g.link] = g.localDisc
		}
		check(t, f.Close())
		return discs
	}
	t.Cleanup(func() {
		b.enter(0)
		if inst, err := datapath.OpenHere("br1"); err == nil && inst != nil {
			_ = inst.DetachAll()
			inst.Close()
		}
	})

	first := start(older, newer)
	if len(first) != 2 {
		t.Fatalf("sessions %v, want two", first)
	}
	if again := start(newer); !maps.Equal(again, first) {
		t.Errorf("without the oldest key: discriminators %v, want %v", again, first)
	}
	fresh := load(newer).router
	for _, l := range fresh.Datapath.Links[1:] {
		if d := fresh.discriminator(l); d == first[l.Name] {
			t.Errorf("link %s has discriminator %#x under either key", l.Name, d)
		}
	}
	attach(load(newest), scionplane.NewPart(fresh.Datapath)) // by 'culvert attach'
	if again := start(newest); !maps.Equal(again, first) {
		t.Errorf("after a time without a process: discriminators %v, want %v", again, first)
	}

	// A reload keeps them too, and a link that it adds has its own.
	former, next := load(older).router, load(newer).router
	toml = b.write("110", "", wire(1, 1, true), wire(4, 4, true))
	more := load(newer).router
	next.followDiscriminators(former)
	more.followDiscriminators(next)
	all := former.linkDiscriminators()
	for n, l := range next.Datapath.Links {
		if d := next.linkDiscriminators()[n]; d != all[n] || (d == 0) != (l.Scope == scionplane.ScopeInternal) {
			t.Errorf("link %s has discriminator %#x after a reload, %#x before", l.Name, d, all[n])
		}
	}
	for _, l := range more.Datapath.Links[1:] {
		d := more.discriminator(l)
		if (l.Name == "1") != (d == former.discriminator(l)) || (l.Name == "4") != (d == fresh.discriminator(l)) {
			t.Errorf("link %s has discriminator %#x", l.Name, d)
		}
	}
}
