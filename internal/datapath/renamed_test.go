// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"culvert/internal/datapath"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// received returns the packets received by each interface that was ever attached.
func received(t *testing.T, plane testbed.Plane) map[string]uint64 {
	t.Helper()
	ports, err := plane.Ports()
	if err != nil {
		t.Fatal(err)
	}
	n := make(map[string]uint64)
	for _, p := range ports {
		n[p.Interface], _ = p.Total()
	}
	return n
}

// TestRenamed attaches again after interfaces were renamed. Before, v0 has received 3 packets and v2 has received 4. After it,
// each attached interface receives one more.
func TestRenamed(t *testing.T) {
	tests := []struct {
		name     string
		change   func(t *testing.T)
		attach   []string
		detached []string
		want     map[string]uint64
	}{
		{"one", func(t *testing.T) { testbed.Rename(t, "v0", "w0") }, []string{"w0", "v2"}, nil,
			map[string]uint64{"w0": 4, "v2": 5}},
		{"swapped", func(t *testing.T) {
			testbed.Rename(t, "v0", "x")
			testbed.Rename(t, "v2", "v0")
			testbed.Rename(t, "x", "v2")
		},
			[]string{"v0", "v2"}, nil, map[string]uint64{"v0": 5, "v2": 4}},
		{"one after the other", func(t *testing.T) { testbed.Rename(t, "v2", "w2"); testbed.Rename(t, "v0", "v2") },
			[]string{"v2", "w2"}, nil, map[string]uint64{"v2": 4, "w2": 5}},
		{"to a name with counters of its own", func(t *testing.T) { testbed.DeleteDevice(t, "v2"); testbed.Rename(t, "v0", "v2") },
			[]string{"v2"}, nil, map[string]uint64{"v0": 3, "v2": 5}},
		{"another has the name now", func(t *testing.T) { testbed.Rename(t, "v0", "w0"); testbed.AddVeth(t, "v0", "v7") },
			[]string{"v0"}, []string{"w0", "v2"}, map[string]uint64{"v0": 4, "v2": 4}},
		{"both wanted", func(t *testing.T) { testbed.Rename(t, "v0", "w0"); testbed.AddVeth(t, "v0", "v7") },
			[]string{"v0", "w0"}, []string{"v2"}, map[string]uint64{"v0": 1, "w0": 4, "v2": 4}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			testbed.InNamespace(t)
			v0, v2 := testbed.AddVeth(t, "v0", "v1"), testbed.AddVeth(t, "v2", "v3")
			inst := scionbed.Attach(t, scionbed.Config(1, 2), "v0", "v2")
			scionbed.Open(t, inst, v2)
			testbed.Feed(t, inst, scionbed.TransitFrame(t, v0, scionbed.Key), "v0", 3)
			testbed.Feed(t, inst, scionbed.TransitFrame(t, v2, scionbed.Key), "v2", 4)
			inst.Close()
			tt.change(t)

			// An Attach that fails at its last step changes nothing.
			testbed.AddBridge(t, "bridge")
			before := testbed.Tree(t)
			_, err := datapath.Attach(datapath.Options{Name: "br1", Interfaces: append(slices.Clone(tt.attach), "bridge"), Parts: scionbed.Parts(scionbed.Config(1, 2))})
			if err == nil || !strings.Contains(err.Error(), "no native XDP") {
				t.Errorf("attached to a bridge: %v", err)
			}
			if after := testbed.Tree(t); after != before {
				t.Errorf("pins are now\n%sand were\n%s", after, before)
			}

			inst = scionbed.Attach(t, scionbed.Config(1, 2), tt.attach...)
			if got := inst.Attached(); !inst.Adopted() || !slices.Equal(got, slices.Sorted(slices.Values(tt.attach))) {
				t.Errorf("adopted %v, attached to %v", inst.Adopted(), got)
			}
			for _, name := range tt.attach {
				testbed.Feed(t, inst, scionbed.TransitFrame(t, testbed.Device(t, name), scionbed.Key), name, 1)
				if testbed.XDPProgram(t, name) == 0 {
					t.Errorf("%s carries no program", name)
				}
			}
			for _, name := range tt.detached {
				if testbed.XDPProgram(t, name) != 0 {
					t.Errorf("%s still carries a program", name)
				}
			}
			if got := received(t, inst); !maps.Equal(got, tt.want) {
				t.Errorf("packets %v, want %v", got, tt.want)
			}
		})
	}
}
