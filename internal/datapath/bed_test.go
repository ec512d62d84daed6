// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"
)

// mustAttach attaches a program without any stage for the length of the test.
func mustAttach(t *testing.T, interfaces ...string) *Instance {
	t.Helper()
	inst, err := Attach(Options{Name: "br1", Interfaces: interfaces})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(inst.Close)
	return inst
}
