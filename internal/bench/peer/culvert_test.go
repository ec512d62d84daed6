// SPDX-License-Identifier: Apache-2.0

package peer_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario"
	"culvert/internal/testbed"
)

// A data plane under test is not pinned, so that it does not outlive the process even if that is killed.
func TestCulvertPinsNothing(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	frames, err := load.UDPFrames(4, peer.FrameSize)
	if err != nil {
		t.Fatal(err)
	}
	row := scenario.VethRow{Label: "culvert-cold", Opts: scenario.VethOptions{Frames: frames, CPU: load.LastCPU()}}
	device := peer.DeviceOf(t, "veth", "culvert-cold", peer.DeviceOptions{})
	row.Device = device
	if err := row.Setup(t.Context()); err != nil {
		t.Fatal(errors.Join(err, row.Teardown()))
	}
	inode, err := row.Path.In.Netns.Inode()
	if err != nil {
		t.Error(err)
	}
	if got := peer.InstanceOf(device).Attached(); len(got) != 2 {
		t.Errorf("attached to %q, want both devices", got)
	}
	if _, err := os.Stat(fmt.Sprintf("/sys/fs/bpf/culvert/%d", inode)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there are pins, error %v", err)
	}
	if err := row.Teardown(); err != nil {
		t.Error(err)
	}
}
