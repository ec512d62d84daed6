// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// TestBeginFails lets Options.Begin fail after the swap. The old program is back on all its interfaces, also on one that the new
// program is not for, with its filter.
func TestBeginFails(t *testing.T) {
	for _, filtered := range []bool{false, true} {
		testbed.InNamespace(t)
		v0, v2 := testbed.AddVeth(t, "v0", "v1"), testbed.AddVeth(t, "v2", "v3")
		testbed.AddVeth(t, "v4", "v5")
		inst := scionbed.Attach(t, scionbed.Config(1, 2), "v0", "v2")
		scionbed.Open(t, inst, v2)
		if filtered {
			err := filterplane.Edit(inst.Instance, func(f *filterplane.Filter) error {
				f.Rules = append(f.Rules, filterplane.Rule{Name: "all", Action: filterplane.Count, Interfaces: []string{"v2"}})
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		testbed.Feed(t, inst, scionbed.TransitFrame(t, v0, scionbed.Key), "v0", 3)
		inst.Close()
		before := testbed.Tree(t)
		was := [3]uint32{testbed.XDPProgram(t, "v0"), testbed.XDPProgram(t, "v2"), testbed.XDPProgram(t, "v4")}

		no, during := errors.New("no"), [3]uint32{}
		_, err := datapath.Attach(datapath.Options{Name: "br1", Interfaces: []string{"v0", "v4"}, Begin: func(*datapath.Instance) error {
			during = [3]uint32{testbed.XDPProgram(t, "v0"), testbed.XDPProgram(t, "v2"), testbed.XDPProgram(t, "v4")}
			return no
		}, Parts: append(scionbed.Parts(scionbed.Config(1)), filterplane.NewPart())})
		if !errors.Is(err, no) {
			t.Fatalf("attached: %v", err)
		}
		if during[0] == was[0] || during[1] != 0 || during[2] == 0 {
			t.Fatalf("programs %v during Begin, %v before", during, was)
		}
		if now := [3]uint32{testbed.XDPProgram(t, "v0"), testbed.XDPProgram(t, "v2"), testbed.XDPProgram(t, "v4")}; now != was {
			t.Errorf("filtered %v: programs %v, were %v", filtered, now, was)
		}
		if after := testbed.Tree(t); after != before {
			t.Errorf("filtered %v: pins are now\n%sand were\n%s", filtered, after, before)
		}
		seen, err := datapath.OpenHere("br1")
		if err != nil {
			t.Fatal(err)
		}
		if c := received(t, seen); c["v0"] != 3 || !reflect.DeepEqual(scionplane.Of(seen).Config(), scionbed.Config(1, 2)) {
			t.Errorf("filtered %v: counted %v", filtered, c)
		}
		if f, err := filterplane.Read(seen); err != nil || filtered != (len(f.Rules) == 1) {
			t.Errorf("filtered %v: %v, %v", filtered, f.Rules, err)
		}
		if err := seen.DetachAll(); err != nil {
			t.Error(err)
		}
		seen.Close()
	}
}

// TestDetachOthersFails lets Attach fail while it detaches from the interfaces that it is not for: one of the pins is no link.
func TestDetachOthersFails(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	testbed.AddVeth(t, "v2", "v3")
	inst := scionbed.Attach(t, scionbed.Config(1, 2), "v0", "v2")
	dir := inst.Dir()
	inst.Close()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	notLink := filepath.Join(dir, "link-v9")
	if err := m.Pin(notLink); err != nil {
		t.Fatal(err)
	}
	before := testbed.Tree(t)
	was := [2]uint32{testbed.XDPProgram(t, "v0"), testbed.XDPProgram(t, "v2")}
	_, err = datapath.Attach(datapath.Options{Name: "br1", Interfaces: []string{"v0"}, Parts: scionbed.Parts(scionbed.Config(1))})
	if err == nil || !strings.Contains(err.Error(), "link-v9") {
		t.Fatalf("attached: %v", err)
	}
	if now := [2]uint32{testbed.XDPProgram(t, "v0"), testbed.XDPProgram(t, "v2")}; now != was {
		t.Errorf("programs %v, were %v", now, was)
	}
	if after := testbed.Tree(t); after != before {
		t.Errorf("pins are now\n%sand were\n%s", after, before)
	}
	if err := os.Remove(notLink); err != nil {
		t.Fatal(err)
	}
	inst = scionbed.Attach(t, scionbed.Config(1), "v0")
	if got := inst.DetachedFrom(); !slices.Equal(got, []string{"v2"}) {
		t.Errorf("detached from %v", got)
	}
}
