// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/testbed"
)

// TestReasonsOfAnotherVersion runs a data plane that numbers its reasons differently. Reading its counters fails, and Attach
// copies them by the names of the reasons.
func TestReasonsOfAnotherVersion(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "a0", "a1")
	inst := mustAttach(t, "a0")
	var punts []int // indexes of reasons, of any stage
	for n, r := range Reasons() {
		if r.Verdict == VerdictPunt {
			punts = append(punts, n)
		}
	}
	one, two := punts[0], punts[1]
	other := inst.meta
	other.Reasons = slices.Clone(other.Reasons)
	other.Reasons[one], other.Reasons[two] = other.Reasons[two], other.Reasons[one]
	other.Reasons[bpfobj.ReasonCount-1] = "punt no-more"
	other.Layouts = map[string]string{}
	slot := other.Ports["a0"] * 2 * bpfobj.ReasonCount
	put := func(index int, packets uint64) {
		t.Helper()
		values := make([]bpfobj.PipelineCounter, ebpf.MustPossibleCPU())
		values[0] = bpfobj.PipelineCounter{Packets: packets}
		if err := inst.maps[bpfobj.PipelineMapCounters].Put(uint32(slot+index), values); err != nil {
			t.Fatal(err)
		}
	}
	put(one, 3) // the old data plane counts reason two here
	put(two, 5)
	put(bpfobj.ReasonCount+two, 7) // packets over the limit
	put(bpfobj.ReasonCount-1, 9)
	dir := inst.dir
	inst.Close()
	replaceMeta(t, dir, other)
	old, err := OpenHere(inst.meta.Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Ports(); err == nil {
		t.Error("the counters were read although the numbers of reasons differ")
	}
	old.Close()
	now := mustAttach(t, "a0")
	ports, err := now.Ports()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]uint64)
	for _, r := range ports[0].Reasons {
		name := r.Name
		if r.Limited {
			name += " limited"
		}
		got[name] = r.Packets
	}
	first, second := Reasons()[one].Name, Reasons()[two].Name
	for name, want := range map[string]uint64{second: 3, first: 5, first + " limited": 7} {
		if got[name] != want {
			t.Errorf("%s: %d packets, want %d", name, got[name], want)
		}
	}
	if len(got) != 3 {
		t.Errorf("counters %v", got)
	}
}
