// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/net/bpf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/filter/filterset"
	"culvert/internal/testbed"
)

// filterDir returns the directory of the pins of the tests' filter.
func filterDir(t *testing.T) string { return filepath.Join(testbed.SpaceDir(t), "f", Stage) }

func pinCopy(m *ebpf.Map, path string) error {
	c, err := m.Clone()
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Pin(path)
}

// filterPins returns the paths of the filter's pins.
func filterPins(t *testing.T, inst *datapath.Instance) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*", "*/*"} {
		paths, err := filepath.Glob(filepath.Join(filterDir(t), pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, paths...)
	}
	return all
}

// TestFilterDiedAtFirst has the pins of a process that died during the first change: a map, and a number without a state.
func TestFilterDiedAtFirst(t *testing.T) {
	inst := filterBed(t, false)
	mustEdit(t, inst, func(f *Filter) { f.Rules = []Rule{{Name: "noicmp", Action: Drop, Code: icmp}} })
	mustEdit(t, inst, func(f *Filter) { f.Rules = nil })
	if left := filterPins(t, inst); len(left) > 0 {
		t.Errorf("a filter without anything has left %v", left)
	}
	stray, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer stray.Close()
	leave := func() {
		dir := filepath.Join(filterDir(t))
		for _, d := range []string{dir, filepath.Join(dir, "maps"), filepath.Join(dir, "7")} {
			if err := os.Mkdir(d, 0o700); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
		}
		if err := pinCopy(stray, filepath.Join(dir, "maps", bpfobj.FilterMapFilterCounts)); err != nil {
			t.Fatal(err)
		}
	}
	leave()
	inst.Close()
	inst = attachFilterBed(t, false)
	leave()
	mustEdit(t, inst, func(f *Filter) { f.Rules = []Rule{{Name: "noicmp", Action: Drop, Code: icmp}} })
	wantRun(t, inst, protoFrame(1, 60), "v0", testbed.XDPDrop)
	wantCounts(t, inst, map[string][2]uint64{"short": {0, 0}, "noicmp": {1, 60}})
}

// TestFilterDiedOverSet has the members that a process left when it died while it deleted a set. A new set that gets the same
// number begins empty.
func TestFilterDiedOverSet(t *testing.T) {
	inst := filterBed(t, false)
	mustEdit(t, inst, func(f *Filter) { f.Sets = []Set{{Name: "kept"}} })
	p, done, err := read(inst)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	for n := range uint32(4) {
		if n == uint32(p.state.Sets["kept"]) {
			continue
		}
		if err := putMembers(p.maps, n, Members{Prefixes: parsePrefixes(t, "192.0.2.0/24")}); err != nil {
			t.Fatal(err)
		}
	}
	mustEdit(t, inst, func(f *Filter) { f.Sets = append(f.Sets, Set{Name: "new"}) })
	members, err := Prefixes(inst, "new")
	if err != nil {
		t.Fatal(err)
	}
	if n := members.Len(); n != 0 {
		t.Errorf("a new set has %d members", n)
	}
}

// TestFilterUnreadable removes the state of a filter that runs. Nothing takes the filter for an empty one, and it stays.
func TestFilterUnreadable(t *testing.T) {
	inst := filterBed(t, false)
	mustEdit(t, inst, func(f *Filter) { f.Rules = []Rule{{Name: "noicmp", Action: Drop, Code: icmp}} })
	before := testbed.XDPProgram(t, "v0")
	states, err := filepath.Glob(filepath.Join(filterDir(t), "*", "state"))
	if err != nil || len(states) != 1 {
		t.Fatalf("%v, %v", states, err)
	}
	if err := os.Remove(states[0]); err != nil {
		t.Fatal(err)
	}
	if f, err := Read(inst); err == nil {
		t.Errorf("read as %+v", f)
	}
	if err := Edit(inst, func(f *Filter) error { f.Rules = nil; return nil }); err == nil {
		t.Error("changed")
	}
	inst.Close()
	again, err := datapath.Attach(datapath.Options{Name: "f", Interfaces: []string{"v0", "v2"}, Parts: []datapath.Part{NewPart()}})
	if err == nil {
		again.Close()
		t.Error("attached in spite of that")
	}
	if now := testbed.XDPProgram(t, "v0"); now != before {
		t.Errorf("v0 carries program %d, not %d", now, before)
	}
}

// TestFilterFollowsNames renames an interface. The rule for it then has the new name.
func TestFilterFollowsNames(t *testing.T) {
	inst := filterBed(t, false)
	mustEdit(t, inst, func(f *Filter) {
		f.Rules = []Rule{{Name: "noicmp", Action: Drop, Code: icmp, Interfaces: []string{"v0"}}}
	})
	inst.Close()
	for _, args := range []string{"set v0 down", "set v0 name w0", "set w0 up"} {
		if out, err := exec.Command("ip", append([]string{"link"}, strings.Fields(args)...)...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", args, err, out)
		}
	}
	inst, err := datapath.Attach(datapath.Options{Name: "f", Interfaces: []string{"w0", "v2"}, Parts: []datapath.Part{NewPart()}})
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Close()
	wantRun(t, inst, protoFrame(1, 60), "w0", testbed.XDPDrop)
	wantRun(t, inst, protoFrame(1, 60), "v2", testbed.XDPPass)
	if f, err := Read(inst); err != nil || f.Rules[0].Interfaces[0] != "w0" {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestFilterRulesWithMembers changes rules and the members of their sets in one step. A refused change changes neither. A set
// may change its type.
func TestFilterRulesWithMembers(t *testing.T) {
	inst := filterBed(t, false)
	change := func(entry string, rule Rule) error {
		return EditAndSets(inst, func(f *Filter) error {
			f.Sets, f.Rules = []Set{{Name: "bad"}}, []Rule{rule}
			return nil
		}, map[string]Members{"bad": {Prefixes: parsePrefixes(t, entry)}})
	}
	bad := Rule{Name: "bad", Action: Drop, Src: []SetRef{{Set: "bad"}}}
	if err := change("192.0.2.0/24", bad); err != nil {
		t.Fatal(err)
	}
	wantRun(t, inst, protoFrame(1, 60), "v0", testbed.XDPDrop)
	over := bad
	over.Action, over.Rate = Limit, &Rate{Rate: MaxByteRate + 1, Bytes: true}
	if err := change("198.51.100.0/24", over); err == nil {
		t.Error("a rate that cannot be kept was taken")
	}
	wantRun(t, inst, protoFrame(1, 60), "v0", testbed.XDPDrop)
	if err := change("198.51.100.0/24", bad); err != nil {
		t.Fatal(err)
	}
	wantRun(t, inst, protoFrame(1, 60), "v0", testbed.XDPPass)
	err := EditAndSets(inst, func(f *Filter) error { f.Sets[0].Endpoints = true; return nil },
		map[string]Members{"bad": {Prefixes: parsePrefixes(t, "192.0.2.1")}})
	if err == nil {
		t.Error("prefixes for a set of endpoints")
	}
	mustEdit(t, inst, func(f *Filter) { f.Sets[0].Endpoints = true })
	if e, err := Endpoints(inst, "bad"); err != nil || len(e) != 0 {
		t.Errorf("%v, %v", e, err)
	}
}

// TestFilterFailedEditLeavesNothing lets an edit fail after it has written the members of its sets and the tables of its
// limits. The set in force keeps its members, and the memory of the new ones is freed.
func TestFilterFailedEditLeavesNothing(t *testing.T) {
	inst := filterBed(t, false)
	limit := Rule{Name: "slow", Action: Limit, Rate: &Rate{Rate: 100, Per: PerSrc}}
	err := EditAndSets(inst, func(f *Filter) error {
		f.Sets, f.Rules = []Set{{Name: "bad"}, {Name: "dns", Endpoints: true}}, []Rule{limit}
		return nil
	}, map[string]Members{"bad": {Prefixes: parsePrefixes(t, "192.0.2.0/24")}, "dns": {Endpoints: filterset.Endpoints{}}})
	if err != nil {
		t.Fatal(err)
	}
	before := usedNumbers(t, inst)
	err = EditAndSets(inst, func(f *Filter) error {
		f.Rules[0].Rate = &Rate{Rate: 200, Per: PerSrc}
		f.Sets = append(f.Sets, Set{Name: "new"})
		f.Rules = append(f.Rules, Rule{Name: "no end", Action: Drop, Code: []bpf.RawInstruction{{Op: 0x28, K: 12}}})
		return nil
	}, map[string]Members{
		"bad": {Prefixes: parsePrefixes(t, "198.51.100.0/24")},
		"dns": {Endpoints: filterset.Endpoints{netip.MustParseAddrPort("192.0.2.1:53"): filterset.Never}},
		"new": {Prefixes: parsePrefixes(t, "203.0.113.0/24")},
	})
	if err == nil {
		t.Fatal("a rule whose code has no end was taken")
	}
	if after := usedNumbers(t, inst); !maps.EqualFunc(after, before, slices.Equal) {
		t.Errorf("numbers in use are %v, were %v", after, before)
	}
	members, err := Prefixes(inst, "bad")
	if err != nil {
		t.Fatal(err)
	}
	if !members.Has(netip.MustParseAddr("192.0.2.1"), Now()) || members.Has(netip.MustParseAddr("198.51.100.1"), Now()) {
		t.Error("the set has the members of the edit that failed")
	}
}

// usedNumbers returns the numbers that have a map of their own, by the map that they are numbers of.
func usedNumbers(t *testing.T, inst *datapath.Instance) map[string][]uint32 {
	t.Helper()
	p, done, err := read(inst)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	used := make(map[string][]uint32)
	for _, name := range append(slices.Clone(setMaps), bpfobj.FilterMapFilterLimitTables) {
		var n, id uint32
		for entries := p.maps[name].Iterate(); entries.Next(&n, &id); {
			used[name] = append(used[name], n)
		}
	}
	return used
}
