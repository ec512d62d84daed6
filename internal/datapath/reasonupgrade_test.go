// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/testbed"
)

// TestReasonsOfAnotherVersion has a data plane run whose reasons have other numbers: nobody takes its counters for those
// of other reasons, and who takes it over goes on with them by their names.
func TestReasonsOfAnotherVersion(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "a0", "a1")
	inst := mustAttach(t, testConfig(1), "a0")
	mac, bfd := bpfobj.PipelineReasonPUNT_SCION_MAC.Index(), bpfobj.PipelineReasonPUNT_SCION_BFD.Index()
	other := inst.meta
	other.Reasons = slices.Clone(other.Reasons)
	other.Reasons[mac], other.Reasons[bfd] = other.Reasons[bfd], other.Reasons[mac]
	other.Reasons[bpfobj.ReasonCount-1] = "punt no-more"
	other.Layouts = map[string]string{}
	slot := uint32(other.Ports["a0"] * 2 * bpfobj.ReasonCount)
	put := func(index, packets uint32) {
		t.Helper()
		values := make([]bpfobj.PipelineCounter, ebpf.MustPossibleCPU())
		values[0] = bpfobj.PipelineCounter{Packets: uint64(packets)}
		if err := inst.maps[bpfobj.PipelineMapCounters].Put(slot+index, values); err != nil {
			t.Fatal(err)
		}
	}
	put(mac, 3) // of BFD there
	put(bfd, 5)
	put(uint32(bpfobj.ReasonCount)+bfd, 7) // over the rate
	put(uint32(bpfobj.ReasonCount-1), 9)
	dir := inst.dir
	inst.Close()
	replaceMeta(t, dir, other)
	old, err := OpenHere(inst.meta.Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Ports(); err == nil {
		t.Error("counters were read by other numbers")
	}
	old.Close()
	now := mustAttach(t, testConfig(1), "a0")
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
	for name, want := range map[string]uint64{"scion-bfd": 3, "scion-mac": 5, "scion-mac limited": 7} {
		if got[name] != want {
			t.Errorf("%s: %d packets, want %d", name, got[name], want)
		}
	}
	if len(got) != 3 {
		t.Errorf("counters %v", got)
	}
}
