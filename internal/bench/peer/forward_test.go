// SPDX-License-Identifier: Apache-2.0

package peer_test

import (
	"errors"
	"testing"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario"
	"culvert/internal/testbed"
)

// Linux forwards all packets. With forwarding off none arrives, so nothing else forwards them.
func TestForward(t *testing.T) {
	testbed.NeedRoot(t)
	frames, err := load.UDPFrames(16, peer.FrameSize)
	if err != nil {
		t.Fatal(err)
	}
	row := &scenario.VethRow{
		Label: "forward", Device: peer.DeviceOf(t, "veth", "forward", peer.DeviceOptions{}),
		Opts: scenario.VethOptions{Frames: frames, Sink: load.SinkOptions{MinLen: peer.FrameSize}, CPU: load.LastCPU()},
	}
	defer func() {
		if err := row.Teardown(); err != nil {
			t.Error(err)
		}
	}()
	if err := row.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	const packets = 1000
	arrived := func() uint64 {
		t.Helper()
		before, err := row.Sink.Seen()
		_, runErr := row.Gen.Run(t.Context(), packets)
		after, settleErr := row.Sink.Settled(scenario.SettleQuiet, scenario.SettleLimit)
		if err := errors.Join(err, runErr, settleErr); err != nil {
			t.Fatal(err)
		}
		return after.Packets - before.Packets
	}
	if got := arrived(); got != packets {
		t.Errorf("%d packets of %d arrived", got, packets)
	}
	if err := peer.ForwardNothing(row.Path.In.Netns); err != nil {
		t.Fatal(err)
	}
	if got := arrived(); got != 0 {
		t.Errorf("%d packets arrived with forwarding off: something else forwards them", got)
	}
}
