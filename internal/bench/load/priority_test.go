// SPDX-License-Identifier: Apache-2.0

package load

import (
	"testing"

	"golang.org/x/sys/unix"

	"culvert/internal/testbed"
)

// The thread has real-time priority, or the highest ordinary one where the kernel allows no other.
func TestRealtime(t *testing.T) {
	testbed.NeedRoot(t)
	err := OnThread(func() error {
		if err := setRealtime(0); err != nil {
			return err
		}
		attr, err := unix.SchedGetAttr(0, 0)
		if err != nil {
			return err
		}
		if attr.Policy != unix.SCHED_FIFO && attr.Nice != -20 {
			t.Errorf("%+v", attr)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
