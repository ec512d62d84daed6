// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"culvert/internal/testbed"
)

// TestBeginFails has what belongs to a new program fail after the swap: the old one is back on every interface, with its
// filter, and on the interface that the new one is not for.
func TestBeginFails(t *testing.T) {
	for _, filtered := range []bool{false, true} {
		testbed.InNamespace(t)
		v0, v2 := testbed.AddVeth(t, "v0", "v1"), testbed.AddVeth(t, "v2", "v3")
		testbed.AddVeth(t, "v4", "v5")
		inst := mustAttach(t, testConfig(1, 2), "v0", "v2")
		openWay(t, inst, v2)
		if filtered {
			err := inst.EditFilter(func(f *Filter) error {
				f.Rules = append(f.Rules, FilterRule{Name: "all", Action: FilterCount, Interfaces: []string{"v2"}})
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		testbed.Feed(t, inst, transitFrame(t, v0, testKey), "v0", 3)
		inst.Close()
		before := testbed.Tree(t)
		was := [3]uint32{testbed.XDPProgram(t, "v0"), testbed.XDPProgram(t, "v2"), testbed.XDPProgram(t, "v4")}

		no, during := errors.New("no"), [3]uint32{}
		_, err := Attach(Options{Name: "br1", Interfaces: []string{"v0", "v4"}, Begin: func(*Instance) error {
			during = [3]uint32{testbed.XDPProgram(t, "v0"), testbed.XDPProgram(t, "v2"), testbed.XDPProgram(t, "v4")}
			return no
		}, Parts: []Part{NewSCIONPart(testConfig(1))}})
		if !errors.Is(err, no) {
			t.Fatalf("attached: %v", err)
		}
		if during[0] == was[0] || during[1] != 0 || during[2] == 0 {
			t.Fatalf("programs %v while it was begun, %v before", during, was)
		}
		if now := [3]uint32{testbed.XDPProgram(t, "v0"), testbed.XDPProgram(t, "v2"), testbed.XDPProgram(t, "v4")}; now != was {
			t.Errorf("filtered %v: programs %v, were %v", filtered, now, was)
		}
		// The state of the filter is pinned under another number, if at all.
		if after := testbed.Tree(t); after != before {
			t.Errorf("filtered %v: pins are now\n%sand were\n%s", filtered, after, before)
		}
		seen, err := OpenHere("br1")
		if err != nil {
			t.Fatal(err)
		}
		if c := received(t, seen); c["v0"] != 3 || !seen.Config().equal(testConfig(1, 2)) {
			t.Errorf("filtered %v: counted %v", filtered, c)
		}
		if f, err := seen.Filter(); err != nil || filtered != (len(f.Rules) == 1) {
			t.Errorf("filtered %v: %v, %v", filtered, f.Rules, err)
		}
		if err := seen.DetachAll(); err != nil {
			t.Error(err)
		}
		seen.Close()
	}
}

// TestDetachOthersFails has a pin that is no link's among those to be taken off, behind one that is.
func TestDetachOthersFails(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	testbed.AddVeth(t, "v2", "v3")
	inst := mustAttach(t, testConfig(1, 2), "v0", "v2")
	dir := inst.dir
	inst.Close()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	odd := filepath.Join(dir, "link-v9")
	if err := m.Pin(odd); err != nil {
		t.Fatal(err)
	}
	before := testbed.Tree(t)
	was := [2]uint32{testbed.XDPProgram(t, "v0"), testbed.XDPProgram(t, "v2")}
	_, err = Attach(Options{Name: "br1", Interfaces: []string{"v0"}, Parts: []Part{NewSCIONPart(testConfig(1))}})
	if err == nil || !strings.Contains(err.Error(), "link-v9") {
		t.Fatalf("attached: %v", err)
	}
	if now := [2]uint32{testbed.XDPProgram(t, "v0"), testbed.XDPProgram(t, "v2")}; now != was {
		t.Errorf("programs %v, were %v", now, was)
	}
	if after := testbed.Tree(t); after != before {
		t.Errorf("pins are now\n%sand were\n%s", after, before)
	}
	if err := os.Remove(odd); err != nil {
		t.Fatal(err)
	}
	inst = mustAttach(t, testConfig(1), "v0")
	if got := inst.TakenOff(); !slices.Equal(got, []string{"v2"}) {
		t.Errorf("taken off %v", got)
	}
}
