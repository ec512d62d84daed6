// SPDX-License-Identifier: Apache-2.0

package scionplane_test

import (
	"bytes"
	"sync/atomic"
	"testing"

	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// TestNextHopChangesUnderLoad changes a next hop while packets use it. Packets that are passed up are unchanged and have a
// reason of the SCION router.
func TestNextHopChangesUnderLoad(t *testing.T) {
	testbed.InNamespace(t)
	in := testbed.AddVeth(t, "a0", "a1")
	out := testbed.AddVeth(t, "b0", "b1")
	inst := scionbed.Attach(t, scionbed.Config(1, 2), "a0", "b0")
	scionbed.Open(t, inst, out)
	frame := scionbed.TransitFrame(t, in, scionbed.Key)
	n := scionbed.LinkIndex(t, inst.Config(), "2")
	hop := scionplane.NextHop{IfIndex: out.Index, SrcMAC: [6]byte(out.HardwareAddr), DstMAC: [6]byte{2, 0, 0, 0, 0, 9}, MTU: 1500}
	other := hop
	other.DstMAC[5] = 10
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			_ = inst.SetLinkNextHop(n, hop)
			_ = inst.SetLinkNextHop(n, other)
		}
	}()
	changed := 0
	for range 400_000 {
		action, after, err := inst.TestRunIndex(frame, in.Index)
		if err != nil {
			t.Fatal(err)
		}
		if action == 2 /* XDP_PASS */ && !bytes.Equal(after, frame) {
			changed++
		}
	}
	stop.Store(true)
	<-done
	_, by, _ := testbed.Counted(t, inst, "a0")
	if changed > 0 || by["pass other"] > 0 {
		t.Errorf("%d packets passed up rewritten; %v", changed, by)
	}
}
