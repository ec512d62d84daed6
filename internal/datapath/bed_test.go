// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"os/exec"
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

func kill(c *exec.Cmd) {
	_ = c.Process.Kill()
	_ = c.Wait()
}
