// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net"
	"os"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/host/pins"
	"culvert/internal/testbed"
)

// TestNamesOfInterfaces renames interfaces that carry an instance, moves them to other network namespaces and makes new ones
// with their names. Attached and Unattached are right afterwards, and AttachPort attaches what is missing. The instance is
// configured for v0 and v2.
func TestNamesOfInterfaces(t *testing.T) {
	currentSpace := func(t *testing.T) *os.File {
		f, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	tests := []struct {
		name     string
		change   func(t *testing.T)
		attached []string // before AttachPort
		want     []pins.Unattached
		after    []string // attached after AttachPort
	}{
		{"renamed", func(t *testing.T) { testbed.Rename(t, "v0", "w0") }, []string{"v0", "v2"}, nil, []string{"v0", "v2"}},
		{"swapped", func(t *testing.T) {
			testbed.Rename(t, "v0", "x")
			testbed.Rename(t, "v2", "v0")
			testbed.Rename(t, "x", "v2")
		},
			[]string{"v0", "v2"}, nil, []string{"v0", "v2"}},
		{"renamed, and a new one with its name", func(t *testing.T) { testbed.Rename(t, "v0", "w0"); testbed.AddVeth(t, "v0", "v7") },
			[]string{"v2", "w0"}, []pins.Unattached{{Interface: "v0", Why: pins.Replaced, Renamed: "w0"}}, []string{"v0", "v2", "w0"}},
		{"renamed, a new one with its name, and the names swapped", func(t *testing.T) {
			testbed.Rename(t, "v0", "w0")
			testbed.AddVeth(t, "v0", "v7")
			testbed.Rename(t, "v0", "u0")
			testbed.Rename(t, "w0", "v0")
		}, []string{"v0", "v2"}, nil, []string{"v0", "v2"}},
		{"renamed to the name of a deleted one", func(t *testing.T) { testbed.DeleteDevice(t, "v0"); testbed.Rename(t, "v2", "v0") },
			[]string{"v0"}, []pins.Unattached{{Interface: "v2", Why: pins.Gone, Renamed: "v0"}}, []string{"v0"}},
		{"moved", func(t *testing.T) { testbed.MoveDevice(t, "v0", testbed.OtherSpace(t, 0)) },
			[]string{"v2"}, []pins.Unattached{{Interface: "v0", Why: pins.Gone, Moved: true}}, []string{"v2"}},
		{"moved, where it gets the index of the other one", func(t *testing.T) {
			testbed.MoveDevice(t, "v0", testbed.OtherSpace(t, testbed.Device(t, "v2").Index-1))
		},
			[]string{"v2"}, []pins.Unattached{{Interface: "v0", Why: pins.Gone, Moved: true}}, []string{"v2"}},
		{"moved, and a new one with its name", func(t *testing.T) {
			testbed.MoveDevice(t, "v0", testbed.OtherSpace(t, 0))
			testbed.AddVeth(t, "v0", "v7")
		},
			[]string{"v2"}, []pins.Unattached{{Interface: "v0", Why: pins.Replaced, Moved: true}}, []string{"v0", "v2"}},
		{"moved, and a new one with its name and index", func(t *testing.T) {
			index := testbed.Device(t, "v0").Index
			testbed.MoveDevice(t, "v0", testbed.OtherSpace(t, 0))
			testbed.AddVethAt(t, index, "v0", "v7")
		}, []string{"v2"}, []pins.Unattached{{Interface: "v0", Why: pins.Replaced, Moved: true}}, []string{"v0", "v2"}},
		{"moved, and a new one with its index and another name", func(t *testing.T) {
			index := testbed.Device(t, "v0").Index
			testbed.MoveDevice(t, "v0", testbed.OtherSpace(t, 0))
			testbed.AddVethAt(t, index, "v9", "v7")
		}, []string{"v2"}, []pins.Unattached{{Interface: "v0", Why: pins.Gone, Moved: true}}, []string{"v2"}},
		{"moved, and back", func(t *testing.T) {
			here, there := currentSpace(t), testbed.OtherSpace(t, 0)
			testbed.MoveDevice(t, "v0", there)
			if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
				t.Fatal(err)
			}
			testbed.MoveDevice(t, "v0", here)
			if err := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); err != nil {
				t.Fatal(err)
			}
		}, []string{"v0", "v2"}, nil, []string{"v0", "v2"}},
		{"deleted, and a new one with its name", func(t *testing.T) { testbed.DeleteDevice(t, "v0"); testbed.AddVeth(t, "v0", "v7") },
			[]string{"v2"}, []pins.Unattached{{Interface: "v0", Why: pins.Replaced}}, []string{"v0", "v2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			testbed.InNamespace(t)
			testbed.AddVeth(t, "v0", "v1")
			testbed.AddVeth(t, "v2", "v3")
			inst := mustAttach(t, "v0", "v2")
			tt.change(t)
			// A process that has not attached finds the same.
			opened, err := openInstance(inst.dir)
			if err != nil {
				t.Fatal(err)
			}
			defer opened.Close()
			for _, i := range []*Instance{inst, opened} {
				if got := i.Attached(); !slices.Equal(got, tt.attached) {
					t.Errorf("attached to %v, want %v", got, tt.attached)
				}
				if got := i.Unattached(); !slices.Equal(got, tt.want) {
					t.Errorf("not attached %+v, want %+v", got, tt.want)
				}
				for name, on := range i.AttachedPorts() {
					missing := slices.ContainsFunc(tt.want, func(u pins.Unattached) bool { return u.Interface == name })
					if on == missing {
						t.Errorf("%s: the metric says attached %v", name, on)
					}
				}
			}
			for _, u := range inst.Unattached() {
				if u.Why == pins.Gone {
					continue
				}
				if err := inst.AttachPort(u); err != nil {
					t.Errorf("attaching to %s: %v", u.Interface, err)
				}
			}
			if got := inst.Attached(); !slices.Equal(got, tt.after) {
				t.Errorf("attached to %v in the end, want %v", got, tt.after)
			}
			// The interfaces in Attached do carry a program.
			for _, name := range inst.Attached() {
				index := inst.livePins()[name].Index
				dev, err := net.InterfaceByIndex(index)
				if err != nil {
					t.Errorf("%s: no interface has index %d", name, index)
				} else if testbed.XDPProgram(t, dev.Name) == 0 {
					t.Errorf("%s carries no program", dev.Name)
				}
			}
			// After the next Attach, v0 and v2 carry it, if they exist, and no other interface does.
			inst.Close()
			var names []string
			for _, name := range []string{"v0", "v2"} {
				if !pins.NoInterface(name) {
					names = append(names, name)
				}
			}
			inst = mustAttach(t, names...)
			if got := inst.AttachedNow(); len(names) > 0 && !slices.Equal(got, names) {
				t.Errorf("the next process is attached to %v, want %v", got, names)
			}
			all, err := net.Interfaces()
			if err != nil {
				t.Fatal(err)
			}
			for _, dev := range all {
				if on := testbed.XDPProgram(t, dev.Name) != 0; on != slices.Contains(names, dev.Name) {
					t.Errorf("the next process: %s carries a program: %v", dev.Name, on)
				}
			}
		})
	}
}

// TestDetachRenamed detaches by the names that Attached returns.
func TestDetachRenamed(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	testbed.AddVeth(t, "v2", "v3")
	inst := mustAttach(t, "v0", "v2")
	testbed.Rename(t, "v0", "w0")
	testbed.AddVeth(t, "v0", "v7")
	if err := inst.Detach("v0"); err == nil || testbed.XDPProgram(t, "w0") == 0 {
		t.Errorf("detached from the new v0, which carries nothing: %v; w0 carries program %d", err, testbed.XDPProgram(t, "w0"))
	}
	if err := inst.Detach("w0"); err != nil || testbed.XDPProgram(t, "w0") != 0 {
		t.Errorf("detaching from w0: %v; it carries program %d", err, testbed.XDPProgram(t, "w0"))
	}
}

// TestRefreshRenamed changes the MAC address of an interface that was renamed after it was attached.
func TestRefreshRenamed(t *testing.T) {
	testbed.InNamespace(t)
	v0 := testbed.AddVeth(t, "v0", "v1")
	inst := mustAttach(t, "v0")
	testbed.Rename(t, "v0", "w0")
	l, err := netlink.LinkByName("w0")
	if err != nil {
		t.Fatal(err)
	}
	mac := net.HardwareAddr{2, 1, 2, 3, 4, 5}
	if err := netlink.LinkSetHardwareAddr(l, mac); err != nil {
		t.Fatal(err)
	}
	if err := inst.Refresh(); err != nil {
		t.Fatal(err)
	}
	var raw bpfobj.PipelinePort
	if err := inst.maps[bpfobj.PipelineMapPorts].Lookup(uint32(v0.Index), &raw); err != nil {
		t.Fatal(err)
	}
	for n, word := range raw.Mac {
		if want := bpfobj.Native.Uint16(mac[2*n:]); word != want {
			t.Errorf("word %d of the address is %x, want %x", n, word, want)
		}
	}
}
