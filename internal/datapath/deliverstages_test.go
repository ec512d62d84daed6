// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"

	"culvert/internal/testbed"
)

// What the SCION router does not read is the kernel's, and so the slow path's.
func TestSCIONWrapped(t *testing.T) {
	testbed.InNamespace(t)
	v0 := testbed.AddVeth(t, "v0", "v1")
	inst := mustAttach(t, testConfig(1, 2), "v0")
	openWay(t, inst, v0)
	if err := inst.AddKey(1, testKey); err != nil {
		t.Fatal(err)
	}
	frame := transitFrame(t, v0, testKey)
	if action, _, err := inst.TestRun(frame, "v0"); err != nil || action != testbed.XDPRedirect {
		t.Fatalf("without anything: action %d, %v", action, err)
	}
	for name, wrap := range testbed.Wraps() {
		testbed.GoesOn(t, inst, "v0", name, wrap(frame))
	}
}
