// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"maps"
	"testing"

	"culvert/internal/bench/report"
	"culvert/internal/scion/scionpkt"
)

// lengths counts frames by their length.
func lengths(frames [][]byte) map[int]int {
	count := map[int]int{}
	for _, f := range frames {
		count[len(f)]++
	}
	return count
}

func TestIMIXProportions(t *testing.T) {
	const n = 12 * 100
	udp, err := UDPFrames(n, IMIX()...)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := lengths(udp), (map[int]int{60: 700, 590: 400, 1514: 100}); !maps.Equal(got, want) {
		t.Errorf("UDP frames by length %v, want %v", got, want)
	}
	router, err := benchRouter()
	if err != nil {
		t.Fatal(err)
	}
	mac := make([]byte, 6)
	p := Path{Source: End{MAC: mac}, In: End{MAC: mac}}
	scion, err := scionTraffic{cold: true, payload: stampLen}.mix(router, p, n, IMIX())
	if err != nil {
		t.Fatal(err)
	}
	// The headers of a SCION packet with three hop fields and a stamp take 150 bytes.
	if got, want := lengths(scion), (map[int]int{150: 700, 590: 400, 1514: 100}); !maps.Equal(got, want) {
		t.Errorf("SCION frames by length %v, want %v", got, want)
	}
	if err := checkStampRoom(scion); err != nil {
		t.Error(err)
	}
	different := map[string]bool{}
	for i, f := range scion {
		l, ok := scionpkt.Locate(f)
		if !ok || scionpkt.UDPSum(f, l) != 0xffff {
			t.Fatalf("frame %d is wrong: %x", i, f)
		}
		different[string(f)] = true
	}
	if len(different) != n {
		t.Errorf("%d different frames, want %d", len(different), n)
	}
}

// Frames of all lengths of the mix come through whole and in order, stamped or not.
func TestIMIXThroughAVeth(t *testing.T) {
	needRoot(t)
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
