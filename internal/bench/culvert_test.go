// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"culvert/internal/testbed"
)

// What culvert is measured with is not pinned, so that nothing is left of it even when the process is killed.
func TestCulvertPinsNothing(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	frames, err := UDPFrames(4, frameSize)
	if err != nil {
		t.Fatal(err)
	}
	row := vethRow{name: "culvert-cold", opts: vethOptions{Frames: frames, CPU: LastCPU()}}
	device := deviceOf(t, "veth", "culvert-cold", Terms{})
	row.device = device
	if err := row.Setup(t.Context()); err != nil {
		t.Fatal(errors.Join(err, row.Teardown()))
	}
	inode, err := row.path.In.Space.inode()
	if err != nil {
		t.Error(err)
	}
	if got := instanceOf(device).Attached(); len(got) != 2 {
		t.Errorf("attached to %q, want both devices", got)
	}
	if _, err := os.Stat(fmt.Sprintf("/sys/fs/bpf/culvert/%d", inode)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there are pins, error %v", err)
	}
	if err := row.Teardown(); err != nil {
		t.Error(err)
	}
}
