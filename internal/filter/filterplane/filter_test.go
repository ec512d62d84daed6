// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"maps"
	"reflect"
	"testing"

	"golang.org/x/net/bpf"

	"culvert/internal/datapath"
	"culvert/internal/testbed"
)

// icmp and udp are what libpcap compiles the expressions "icmp" and "ip proto 17" to.
var icmp = []bpf.RawInstruction{
	{Op: 0x28, K: 12}, {Op: 0x15, Jt: 0, Jf: 3, K: 0x0800}, {Op: 0x30, K: 23}, {Op: 0x15, Jt: 0, Jf: 1, K: 1},
	{Op: 0x6, K: 262144}, {Op: 0x6, K: 0},
}

var udp = []bpf.RawInstruction{
	{Op: 0x28, K: 12}, {Op: 0x15, Jt: 0, Jf: 3, K: 0x0800}, {Op: 0x30, K: 23}, {Op: 0x15, Jt: 0, Jf: 1, K: 17},
	{Op: 0x6, K: 262144}, {Op: 0x6, K: 0},
}

// filterBed attaches a data plane to the interfaces v0 and v2. It has no stage but the filter, which is empty.
func filterBed(t *testing.T, temporary bool) *datapath.Instance {
	t.Helper()
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	testbed.AddVeth(t, "v2", "v3")
	return attachFilterBed(t, temporary)
}

func attachFilterBed(t *testing.T, temporary bool) *datapath.Instance {
	t.Helper()
	inst, err := datapath.Attach(datapath.Options{Name: "f", Interfaces: []string{"v0", "v2"}, Temporary: temporary, Parts: []datapath.Part{NewPart()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(inst.Close)
	return inst
}

func mustEdit(t *testing.T, inst *datapath.Instance, change func(*Filter)) {
	t.Helper()
	if err := Edit(inst, func(f *Filter) error { change(f); return nil }); err != nil {
		t.Fatal(err)
	}
}

// protoFrame returns a frame of n bytes, at least 34, with an IPv4 packet of a protocol from 192.0.2.1 to 192.0.2.2.
func protoFrame(proto byte, n int) []byte {
	f := make([]byte, n)
	f[12], f[13] = 8, 0
	f[14], f[16], f[17] = 0x45, byte((n-14)>>8), byte(n-14)
	f[22], f[23] = 64, proto
	copy(f[26:], []byte{192, 0, 2, 1, 192, 0, 2, 2})
	return f
}

// wantRun runs a frame that comes in by iface through the data plane, and checks the XDP action.
func wantRun(t *testing.T, inst *datapath.Instance, frame []byte, iface string, want uint32) {
	t.Helper()
	action, _, err := inst.TestRun(frame, iface)
	if err != nil {
		t.Fatal(err)
	}
	if action != want {
		t.Errorf("action %d on %s, want %d", action, iface, want)
	}
}

// wantCounts checks the packets and bytes of all rules, by their names, and of "short".
func wantCounts(t *testing.T, inst *datapath.Instance, want map[string][2]uint64) {
	t.Helper()
	c, err := ReadCounters(inst)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][2]uint64{"short": {c.Short.Packets, c.Short.Bytes}}
	for _, r := range c.Rules {
		got[r.Name] = [2]uint64{r.Matched.Packets, r.Matched.Bytes}
	}
	if !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

func TestFilterEdit(t *testing.T) {
	for name, temporary := range map[string]bool{"temporary": true, "pinned": false} {
		t.Run(name, func(t *testing.T) {
			inst := filterBed(t, temporary)
			plain := testbed.XDPProgram(t, "v0")
			wantRun(t, inst, protoFrame(1, 60), "v0", testbed.XDPPass)
			mustEdit(t, inst, func(f *Filter) {
				f.Rules = append(f.Rules,
					Rule{Name: "all", Action: Count},
					Rule{Name: "noicmp", Action: Drop, Code: icmp},
					Rule{Name: "noudp", Action: Drop, Code: udp, Interfaces: []string{"v2"}})
			})
			if testbed.XDPProgram(t, "v0") == plain || testbed.XDPProgram(t, "v0") != testbed.XDPProgram(t, "v2") {
				t.Error("the interfaces do not carry one new program")
			}
			for _, n := range []int{42, 53, 54, 60, 1400} {
				wantRun(t, inst, protoFrame(1, n), "v0", testbed.XDPDrop)
				wantRun(t, inst, protoFrame(17, n), "v0", testbed.XDPPass)
				wantRun(t, inst, protoFrame(17, n), "v2", testbed.XDPDrop)
			}
			wantRun(t, inst, protoFrame(1, 42)[:20], "v0", testbed.XDPPass)
			const sum = 42 + 53 + 54 + 60 + 1400
			wantCounts(t, inst, map[string][2]uint64{
				"short": {1, 20}, "all": {16, 3*sum + 20}, "noicmp": {5, sum}, "noudp": {5, sum},
			})
			_, by, _ := testbed.Counted(t, inst, "v0")
			if want := map[string]uint64{"drop filter": 5, "pass other": 7}; !maps.Equal(by, want) {
				t.Errorf("v0 has counted %v, want %v", by, want)
			}
			// Of the old rules only noicmp stays. Its counters stay too.
			mustEdit(t, inst, func(f *Filter) {
				f.Rules = []Rule{
					{Name: "other", Action: Pass, Code: udp}, f.Rules[1], {Name: "noudp2", Action: Drop, Code: udp},
				}
			})
			wantRun(t, inst, protoFrame(1, 60), "v2", testbed.XDPDrop)
			wantRun(t, inst, protoFrame(17, 60), "v2", testbed.XDPPass)
			wantCounts(t, inst, map[string][2]uint64{
				"short": {1, 20}, "other": {1, 60}, "noicmp": {6, sum + 60}, "noudp2": {0, 0},
			})
			mustEdit(t, inst, func(f *Filter) { f.Rules = nil })
			if now := testbed.XDPProgram(t, "v0"); now != plain {
				t.Errorf("without rules v0 carries program %d, not %d", now, plain)
			}
			wantRun(t, inst, protoFrame(1, 60), "v0", testbed.XDPPass)
		})
	}
}

// TestFilterAdopted lets a new generation of the pipeline adopt the filter, and another process read and change it.
func TestFilterAdopted(t *testing.T) {
	inst := filterBed(t, false)
	mustEdit(t, inst, func(f *Filter) {
		f.Rules = []Rule{{Name: "noicmp", Action: Drop, Code: icmp}}
	})
	wantRun(t, inst, protoFrame(1, 60), "v0", testbed.XDPDrop)
	before := testbed.XDPProgram(t, "v0")
	inst.Close()
	inst = attachFilterBed(t, false)
	if !inst.Adopted() {
		t.Error("not adopted")
	}
	if testbed.XDPProgram(t, "v0") == before {
		t.Error("v0 carries the program of before")
	}
	wantRun(t, inst, protoFrame(1, 60), "v0", testbed.XDPDrop)
	wantCounts(t, inst, map[string][2]uint64{"short": {0, 0}, "noicmp": {2, 120}})
	all, err := datapath.ListHere()
	if err != nil || len(all) != 1 {
		t.Fatalf("%d instances, %v", len(all), err)
	}
	defer all[0].Close()
	if f, err := Read(all[0]); err != nil || len(f.Rules) != 1 {
		t.Errorf("filter %+v, %v", f, err)
	}
	mustEdit(t, all[0], func(f *Filter) { f.Rules = nil })
	wantRun(t, inst, protoFrame(1, 60), "v0", testbed.XDPPass)
}

func TestFilterTester(t *testing.T) {
	inst := filterBed(t, false)
	mustEdit(t, inst, func(f *Filter) {
		f.Rules = []Rule{
			{Name: "all", Action: Count}, {Name: "noicmp", Action: Drop, Code: icmp},
			{Name: "udp", Action: Pass, Code: udp, Interfaces: []string{"v2"}},
		}
	})
	f, err := Read(inst)
	if err != nil {
		t.Fatal(err)
	}
	tester, err := NewTester(inst, f)
	if err != nil {
		t.Fatal(err)
	}
	defer tester.Close()
	for _, tt := range []struct {
		name  string
		frame []byte
		iface string
		want  Verdict
	}{
		{"ICMP", protoFrame(1, 60), "", Verdict{Action: Drop, Rule: "noicmp", Matched: []string{"all", "noicmp"}}},
		{"UDP", protoFrame(17, 60), "", Verdict{Action: Pass, Matched: []string{"all"}}},
		{"UDP on the rule's interface", protoFrame(17, 60), "v2", Verdict{Action: Pass, Rule: "udp", Matched: []string{"all", "udp"}}},
		{"TCP on the rule's interface", protoFrame(6, 60), "v2", Verdict{Action: Pass, Matched: []string{"all"}}},
		{"a truncated packet", protoFrame(1, 60)[:16], "v2", Verdict{Action: Pass, Matched: []string{"all"}, Short: true}},
	} {
		if got, err := tester.Run(tt.frame, tt.iface); err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
	wantCounts(t, inst, map[string][2]uint64{"short": {0, 0}, "all": {0, 0}, "noicmp": {0, 0}, "udp": {0, 0}})
}

// TestFilterRefused makes changes that are refused. The filter stays as it is.
func TestFilterRefused(t *testing.T) {
	inst := filterBed(t, false)
	mustEdit(t, inst, func(f *Filter) {
		f.Rules = []Rule{{Name: "noicmp", Action: Drop, Code: icmp}}
	})
	before := testbed.XDPProgram(t, "v0")
	for name, rule := range map[string]Rule{
		"name taken":   {Name: "noicmp", Action: Pass},
		"no name":      {Action: Pass},
		"no set":       {Name: "x", Action: Drop, Src: []SetRef{{Set: "bad"}}},
		"no action":    {Name: "x"},
		"no rate":      {Name: "x", Action: Limit},
		"rate to drop": {Name: "x", Action: Drop, Rate: &Rate{Rate: 1}},
		"bad code":     {Name: "x", Action: Drop, Code: []bpf.RawInstruction{{Op: 0x28, K: 12}}},
	} {
		err := Edit(inst, func(f *Filter) error { f.Rules = append(f.Rules, rule); return nil })
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if f, err := Read(inst); err != nil || len(f.Rules) != 1 || testbed.XDPProgram(t, "v0") != before {
		t.Errorf("filter is %+v, %v", f, err)
	}
}
