// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"os"
	"testing"

	"culvert/internal/host/pins"
	"culvert/internal/testbed"
)

// TestStarting: an instance on no interface is starting exactly while the edit lock is held.
func TestStarting(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	inst := mustAttach(t, "v0")
	defer func() {
		if err := inst.DetachAll(); err != nil {
			t.Error(err)
		}
	}()
	starting := func(locked bool) bool {
		t.Helper()
		if locked {
			unlock, err := lockEdits(inst.dir)
			if err != nil {
				t.Fatal(err)
			}
			defer unlock()
		}
		return inst.Starting()
	}
	if starting(true) {
		t.Error("an instance that is attached is being started")
	}
	if err := os.Remove(pins.LinkPath(inst.dir, "v0")); err != nil {
		t.Fatal(err)
	}
	if starting(false) || !starting(true) {
		t.Error("whether it is being started does not follow the lock")
	}
}
