// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"testing"

	"culvert/internal/testbed"
)

// Linux forwards all packets, and none arrives when it may not.
func TestForward(t *testing.T) {
	testbed.NeedRoot(t)
	frames, err := UDPFrames(16, frameSize)
	if err != nil {
		t.Fatal(err)
	}
	row := &vethRow{
		name: "forward", device: deviceOf(t, "veth", "forward", Terms{}),
		opts: vethOptions{Frames: frames, Sink: SinkOptions{MinLen: frameSize}, CPU: LastCPU()},
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
		before, err := row.sink.Seen()
		_, runErr := row.gen.Run(t.Context(), packets)
		after, settleErr := row.sink.Settled(settleQuiet, settleLimit)
		if err := errors.Join(err, runErr, settleErr); err != nil {
			t.Fatal(err)
		}
		return after.Packets - before.Packets
	}
	if got := arrived(); got != packets {
		t.Errorf("%d packets of %d arrived", got, packets)
	}
	if err := forwardNothing(row.path.In.Space); err != nil {
		t.Fatal(err)
	}
	if got := arrived(); got != 0 {
		t.Errorf("%d packets arrived with forwarding off: something else forwards them", got)
	}
}
