// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterset"
	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// TestBeginFails lets Options.Begin fail after the swap. The old program is back on all its interfaces, also on one that the new
// program is not for, with its filter, and packets get through that to the pipeline.
func TestBeginFails(t *testing.T) {
	count := func(f *filterplane.Filter) error {
		f.Rules = append(f.Rules, filterplane.Rule{Name: "all", Action: filterplane.Count, Interfaces: []string{"v2"}})
		return nil
	}
	for _, tt := range []struct {
		name          string
		before, begin func(*datapath.Instance) error
		rules         int
	}{
		{"no filter", nil, nil, 0},
		{"a filter", func(i *datapath.Instance) error { return filterplane.Edit(i, count) }, nil, 1},
		{"a filter that Begin makes", nil, func(i *datapath.Instance) error { return filterplane.Edit(i, count) }, 0},
		{
			"a filter with a set that Begin replaces",
			func(i *datapath.Instance) error { return setOf(i, "192.0.2.0/24") },
			func(i *datapath.Instance) error { return setOf(i, "0.0.0.0/0") }, 1,
		},
		{
			"a filter that Begin removes",
			func(i *datapath.Instance) error { return setOf(i, "192.0.2.0/24") },
			func(i *datapath.Instance) error {
				return filterplane.Edit(i, func(f *filterplane.Filter) error { *f = filterplane.Filter{}; return nil })
			}, 1,
		},
		{
			"a filter that Begin changes twice, which is refused",
			func(i *datapath.Instance) error { return setOf(i, "192.0.2.0/24") },
			func(i *datapath.Instance) error {
				err := setOf(i, "0.0.0.0/0")
				if again := setOf(i, "198.51.100.0/24"); again == nil || !strings.Contains(again.Error(), "changed already") {
					err = errors.Join(err, fmt.Errorf("changed again: %w", again))
				}
				return err
			}, 1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) { beginFails(t, tt.before, tt.begin, tt.rules) })
	}
}

// setOf has the filter drop what comes from a set with one prefix.
func setOf(i *datapath.Instance, prefix string) error {
	members, err := filterset.ParsePrefixes([]string{prefix}, filterset.Options{})
	if err != nil {
		return err
	}
	return filterplane.EditAndSets(i, func(f *filterplane.Filter) error {
		*f = filterplane.Filter{
			Sets:  []filterplane.Set{{Name: "bad"}},
			Rules: []filterplane.Rule{{Name: "bad", Action: filterplane.Drop, Src: []filterplane.SetRef{{Set: "bad"}}}},
		}
		return nil
	}, map[string]filterplane.Members{"bad": {Prefixes: members}})
}

func beginFails(t *testing.T, filter, begin func(*datapath.Instance) error, rules int) {
	testbed.InNamespace(t)
	v0, v2 := testbed.AddVeth(t, "v0", "v1"), testbed.AddVeth(t, "v2", "v3")
	testbed.AddVeth(t, "v4", "v5")
	inst := scionbed.Attach(t, scionbed.Config(1, 2), "v0", "v2")
	scionbed.Open(t, inst, v2)
	if filter != nil {
		if err := filter(inst.Instance); err != nil {
			t.Fatal(err)
		}
	}
	frame := scionbed.TransitFrame(t, v0, scionbed.Key)
	testbed.Feed(t, inst, frame, "v0", 3)
	inst.Close()
	before, sets := testbed.Tree(t), setsInKernel(t, inst.Dir())
	was := [3]uint32{testbed.XDPProgram(t, "v0"), testbed.XDPProgram(t, "v2"), testbed.XDPProgram(t, "v4")}

	no, during := errors.New("no"), [3]uint32{}
	_, err := datapath.Attach(datapath.Options{Name: "br1", Interfaces: []string{"v0", "v4"}, Begin: func(i *datapath.Instance) error {
		if begin != nil {
			if err := begin(i); err != nil {
				return err
			}
		}
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
		t.Errorf("programs %v, were %v", now, was)
	}
	if after := testbed.Tree(t); after != before {
		t.Errorf("pins are now\n%sand were\n%s", after, before)
	}
	if after := setsInKernel(t, inst.Dir()); after != sets {
		t.Errorf("the members of %d sets are in the kernel, were %d", after, sets)
	}
	seen, err := datapath.OpenHere("br1")
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Close()
	if c := received(t, seen); c["v0"] != 3 || !reflect.DeepEqual(scionplane.Of(seen).Config(), scionbed.Config(1, 2)) {
		t.Errorf("counted %v", c)
	}
	if f, err := filterplane.Read(seen); err != nil || len(f.Rules) != rules {
		t.Errorf("%v, %v", f.Rules, err)
	}
	action, _, err := seen.TestRun(frame, "v0")
	if c := received(t, seen); err != nil || action != testbed.XDPRedirect || c["v0"] != 4 {
		t.Errorf("action %d, counted %v, %v", action, c, err)
	}
	if err := seen.DetachAll(); err != nil {
		t.Error(err)
	}
}

// setsInKernel returns of how many sets the filter in dir holds the members, -1 if there is no filter.
func setsInKernel(t *testing.T, dir string) (sets int) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, filterplane.Stage, "maps", bpfobj.FilterMapFilterSets), nil)
	if errors.Is(err, os.ErrNotExist) {
		return -1
	} else if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var number, id uint32
	for entries := m.Iterate(); entries.Next(&number, &id); {
		sets++
	}
	return sets
}

// TestAttachPortFails renames an interface and gives its name to another one, which has no native XDP. The rule for that name
// stays with the one that carries the data plane.
func TestAttachPortFails(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	parts := append(scionbed.Parts(scionbed.Config(1, 2)), filterplane.NewPart())
	inst, err := datapath.Attach(datapath.Options{Name: "br1", Interfaces: []string{"v0"}, Parts: parts})
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Close()
	err = filterplane.Edit(inst, func(f *filterplane.Filter) error {
		f.Rules = []filterplane.Rule{{Name: "all", Action: filterplane.Drop, Interfaces: []string{"v0"}}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	testbed.Rename(t, "v0", "w0")
	testbed.AddBridge(t, "v0")
	w0 := testbed.Device(t, "w0")
	frame := scionbed.TransitFrame(t, w0, scionbed.Key)
	drops := func() bool {
		action, _, err := inst.TestRun(frame, "w0")
		if err != nil {
			t.Fatal(err)
		}
		return action == testbed.XDPDrop
	}
	if !drops() {
		t.Fatal("the rule does not follow the renamed interface")
	}
	left := inst.Unattached()
	if len(left) != 1 || left[0].Interface != "v0" {
		t.Fatalf("unattached: %+v", left)
	}
	if err := inst.AttachPort(left[0]); err == nil || !strings.Contains(err.Error(), "no native XDP") {
		t.Fatalf("attached to a bridge: %v", err)
	}
	if !drops() {
		t.Error("the rule has left the interface that carries the data plane")
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
