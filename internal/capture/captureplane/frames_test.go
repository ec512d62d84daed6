// SPDX-License-Identifier: Apache-2.0

package captureplane

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// frames returns frames of all kinds of ways through the router and the filter, which drops port 7. Some have several buffers.
func (b *bed) frames() [][]byte {
	arp := append(append(bytes.Clone(b.west.HardwareAddr), 2, 0, 0, 0, 0, 1, 8, 6), make([]byte, 46)...)
	odd := append(append(bytes.Clone(b.west.HardwareAddr), 2, 0, 0, 0, 0, 1, 0x88, 0xb5), make([]byte, 46)...)
	return [][]byte{
		b.packet("192.0.2.5", 64, 2000, 20),
		b.packet("192.0.2.5", 64, 7, 20),
		b.packet("198.51.100.1", 64, 2000, 20),
		b.packet("192.0.2.5", 1, 2000, 20),
		b.packet("10.1.0.1", 64, 2000, 20),
		b.packet("224.0.0.5", 64, 2000, 20),
		arp, odd, odd[:14],
		dot1Q(b.packet("192.0.2.5", 64, 2000, 20), 30),
		b.packet("192.0.2.5", 64, 2000, b.forwardable(6000)),
		b.packet("192.0.2.5", 64, 7, b.forwardable(8000)),
		b.packet("198.51.100.1", 64, 2000, 6000),
		append(b.packet("192.0.2.5", 64, 2000, 20), "trailer"...),
		b.packet("192.0.2.5", 64, 2000, 1400),
	}
}

// same wants two runs of the same frames to have the same results.
func same(t *testing.T, what string, got, want []result) {
	t.Helper()
	for n := range want {
		if got[n] != want[n] {
			t.Errorf("%s: frame %d: %s, out %x\nwant %s, out %x", what, n, got[n].reason, got[n].out, want[n].reason, want[n].out)
		}
	}
}

// TestCaptureFrames sends the same frames without a capture, with one, and after it. The results are the same, and the capture shows
// each frame as it came in and as it went out, and the reason that it was counted under.
func TestCaptureFrames(t *testing.T) {
	t.Run("neither filter nor workers", func(t *testing.T) { captureFrames(t, false, nil) })
	t.Run("workers", func(t *testing.T) { captureFrames(t, false, []int{0, 1}) })
	t.Run("filter and workers", func(t *testing.T) { captureFrames(t, true, []int{0, 1}) })
}

func captureFrames(t *testing.T, filtered bool, workers []int) {
	b := newBed(t, workers...)
	if filtered {
		b.drops("udp dst port 7")
	}
	// A punt over its rate is a drop.
	b.must(b.inst.SetLimit(bpfobj.PipelineReasonPUNT_ROUTE_MULTICAST, datapath.NoPacket()))
	frames := append(b.frames(), b.flows()...)
	want := b.run(frames)
	tags, _ := b.programs()
	pins := tree(t)

	const snap = 7000
	s := b.start(Options{InBytes: snap, OutBytes: snap}, "")
	same(t, "captured", b.run(frames), want)
	packets := b.join(b.read(s, 2*len(frames)))
	if len(packets) != len(frames) {
		t.Fatalf("%d packets, want %d", len(packets), len(frames))
	}
	kinds := make(map[string]bool)
	for n, p := range packets {
		if p.in == nil || p.out == nil {
			t.Errorf("frame %d: in %v, out %v", n, p.in, p.out)
			continue
		}
		kinds[want[n].reason] = true
		if !bytes.Equal(p.in.data, frames[n][:min(len(frames[n]), snap)]) || int(p.in.Len) != len(frames[n]) || int(p.in.Ingress) != b.west.Index {
			t.Errorf("frame %d came in as\n%x, length %d, by %d, want\n%x", n, p.in.data, p.in.Len, p.in.Ingress, frames[n])
		}
		if p.out.reason() != want[n].reason || p.out.Time < p.in.Time || int(p.out.Ingress) != b.west.Index {
			t.Errorf("frame %d: %s, came in by %d, %d ns; counted as %s", n, p.out.reason(), p.out.Ingress, p.out.Time-p.in.Time, want[n].reason)
		}
		egress := 0
		if want[n].out != "" {
			egress = b.east.Index
		}
		if int(p.out.Egress) != egress || string(p.out.data) != want[n].out[:min(len(want[n].out), snap)] || egress != 0 && int(p.out.Len) != len(want[n].out) {
			t.Errorf("frame %d went out by %d as\n%x, length %d, want by %d\n%x", n, p.out.Egress, p.out.data, p.out.Len, egress, want[n].out)
		}
	}
	for _, reason := range []string{"fwd route-fib", "drop route-blackhole", "punt route-ttl", "pass route-local", "limited route-multicast"} {
		if !kinds[reason] {
			t.Errorf("no frame has %s: %v", reason, kinds)
		}
	}
	// Without a filter in front only the worker shows a packet that it gets.
	if (b.enqueued > 0) != (workers != nil && filtered) {
		t.Errorf("%d packets were enqueued for workers", b.enqueued)
	}
	if kinds["drop filter"] != filtered {
		t.Errorf("a frame has drop filter: %v", !filtered)
	}
	b.must(s.Close())
	same(t, "afterwards", b.run(frames), want)
	b.plain(tags, pins)
}

// TestCaptureBytes limits how much is shown, each way.
func TestCaptureBytes(t *testing.T) {
	b := newBed(t)
	frame := b.packet("192.0.2.5", 64, 2000, b.forwardable(6000))
	for _, o := range []Options{{InBytes: 0, OutBytes: 60}, {InBytes: 4000, OutBytes: 3900}, {InBytes: 65000, OutBytes: 65000}} {
		s := b.start(o, "")
		out := b.run([][]byte{frame})[0].out
		packets := b.join(b.read(s, 2))
		if len(packets) != 1 || packets[0].in == nil || packets[0].out == nil {
			t.Fatalf("%+v: %d packets", o, len(packets))
		}
		if p := packets[0]; string(p.in.data) != string(frame[:min(o.InBytes, len(frame))]) || string(p.out.data) != out[:min(o.OutBytes, len(out))] ||
			int(p.in.Len) != len(frame) || int(p.out.Len) != len(out) {
			t.Errorf("%+v: %d of %d bytes in, %d of %d bytes out", o, len(p.in.data), p.in.Len, len(p.out.data), p.out.Len)
		}
		b.must(s.Close())
	}
}

// TestCaptureSelects has expressions and interfaces that match the frame that comes in, the one that goes out, both or none.
func TestCaptureSelects(t *testing.T) {
	b := newBed(t)
	testVeth(t, "spare")
	b.drops("udp dst port 7")
	frames := [][]byte{b.packet("192.0.2.5", 64, 2000, b.forwardable(6000)), b.packet("192.0.2.5", 64, 7, 20)}
	west, east := []string{"west"}, []string{"east"}
	for _, tt := range []struct {
		expression string
		on         []string
		want       string // of both frames: i, o or -
	}{
		{"tcp", nil, "-- --"},
		{"udp dst port 7", nil, "-- io"},
		{"ip[8] = 63", nil, "-o --"}, // the hop limit of the frame that goes out
		{fmt.Sprintf("udp[%d:4] = 0x64617461", b.forwardable(6000)-2000), nil, "io --"}, // behind the first buffer, if there are several
		{"", west, "io io"},
		{"", east, "-o --"},
		{"ip[8] = 63", []string{"spare", "east"}, "-o --"},
		{"", []string{"gone", "east"}, "-o --"},
	} {
		s := b.start(Options{InBytes: 10, OutBytes: 10, Interfaces: tt.on}, tt.expression)
		b.run(frames)
		kinds := make([]string, len(frames))
		for n := range kinds {
			kinds[n] = "--"
		}
		for _, p := range b.join(b.read(s, strings.Count(tt.want, "i")+strings.Count(tt.want, "o"))) {
			in, out, n := "-", "-", 1
			if p.in != nil {
				in = "i"
			}
			if p.out != nil {
				out = "o"
			}
			if p.out != nil && p.out.Egress != 0 {
				n = 0
			}
			kinds[n] = in + out
		}
		if got := strings.Join(kinds, " "); got != tt.want {
			t.Errorf("%q on %v: %s, want %s", tt.expression, tt.on, got, tt.want)
		}
		b.must(s.Close())
	}
	if _, err := Start(b.inst, Options{Program: all, Interfaces: make([]string, MaxInterfaces+1)}, others(), 4096); err == nil {
		t.Error("too many interfaces are accepted")
	}
}

// TestCaptureSample shows one packet of eight, with all of its records. The bounds are six standard deviations: the test fails once in
// 500 million runs by chance.
func TestCaptureSample(t *testing.T) {
	b := newBed(t)
	b.drops("udp dst port 7")
	const one, sent = 8, 8000
	const mean, bound = sent / one, 178 // 6 * sqrt(8000 * 1/8 * 7/8)
	for expression, in := range map[string]bool{"udp": true, "ip[8] = 63": false} {
		s := b.start(Options{InBytes: 10, OutBytes: 10, Sample: one}, expression)
		b.flood(b.packet("192.0.2.5", 64, 2000, 20), sent)
		packets := b.join(b.read(s, 0))
		if n := len(packets); n < mean-bound || n > mean+bound {
			t.Errorf("%q: %d packets of %d, want %d to %d", expression, n, sent, mean-bound, mean+bound)
		}
		for _, p := range packets {
			if (p.in != nil) != in || p.out == nil {
				t.Fatalf("%q: in %v, out %v", expression, p.in, p.out)
			}
		}
		b.must(s.Close())
	}
}
