// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"testing"

	"culvert/internal/bench/report"
	"culvert/internal/testbed"
)

// Frames of all lengths of an IMIX arrive whole and in order, with and without stamps.
func TestIMIXThroughAVeth(t *testing.T) {
	testbed.NeedRoot(t)
	const flows, packets = 12 * 5, 12 * 5 * 400
	for _, stamped := range []bool{false, true} {
		o := SinkOptions{}
		if stamped {
			o.Flows = flows
		}
		from, to, sink := testSink(t, o)
		frames, err := UDPFrames(flows, IMIX()...)
		if err != nil {
			t.Fatal(err)
		}
		frames = Addressed(frames, to.MAC, from.MAC)
		gen, err := NewGenerator(GeneratorOptions{Frames: frames, Stamp: stamped, From: from, CPU: LastCPU()})
		if err != nil {
			t.Fatal(err)
		}
		sent, err := gen.Run(context.Background(), packets)
		if err != nil {
			t.Fatal(err)
		}
		seen := settled(t, sink, packets)
		const bytes = packets / 12 * (7*60 + 4*590 + 1514)
		if want := (Seen{Packets: packets, Bytes: bytes}); seen != want || sent.Bytes != bytes {
			t.Errorf("stamped %v: seen %+v, want %+v, sent %d bytes", stamped, seen, want, sent.Bytes)
		}
		if stamped {
			if got, err := sink.Order(); err != nil || got != (report.Order{Packets: packets}) {
				t.Errorf("%+v, error %v", got, err)
			}
		}
		if err := gen.Close(); err != nil {
			t.Error(err)
		}
	}
}
