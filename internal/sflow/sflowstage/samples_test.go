// SPDX-License-Identifier: Apache-2.0

package sflowstage

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	decoder "github.com/netsampler/goflow2/v2/decoders/sflow"

	"culvert/internal/sflow"
)

// TestSamples has packets that are forwarded, dropped by a stage and by the filter, punted, and for this host. All of them are
// sampled.
func TestSamples(t *testing.T) {
	for _, filtered := range []bool{false, true} {
		t.Run(fmt.Sprint("filtered ", filtered), func(t *testing.T) {
			b := newBed(t)
			b.serve("rate = 1\ndrops = 100\npolling = \"0s\"\n")
			frames := []struct {
				frame    []byte
				output   uint32
				function string // of a packet that is dropped
			}{
				{b.packet("192.0.2.5", 64, 2000, 1000), uint32(b.east.Index), ""},
				{b.packet("198.51.100.1", 64, 2000, 20), 1<<30 | uint32(sflow.BlackholeRoute), "route-blackhole"},
				{b.packet("192.0.2.5", 1, 2000, 20), sflow.Unknown, ""},
				{b.packet("10.1.0.1", 64, 2000, 20), sflow.Internal, ""},
				{b.packet("192.0.2.5", 64, 7, 200), 1<<30 | uint32(sflow.ACL), "filter"},
			}
			if filtered {
				b.drops("udp dst port 7")
			} else {
				frames = frames[:4]
			}
			for _, f := range frames {
				b.send(f.frame)
			}
			got := b.receive("samples", func(r *received) bool { return len(r.flows) >= len(frames) })
			for n, f := range frames {
				s := got.flows[n]
				raw := header(s.Records)
				if int(s.Input) != b.west.Index || s.Output != f.output || s.SamplingRate != 1 || int(s.SamplePool) != n+1 || s.Drops != 0 ||
					int(s.Header.SampleSequenceNumber) != n+1 || s.Header.SourceIdType != 0 || int(s.Header.SourceIdValue) != b.west.Index {
					t.Errorf("frame %d: %+v, want output %x", n, s, f.output)
				}
				if !bytes.Equal(raw.HeaderData, f.frame[:min(len(f.frame), 128)]) || int(raw.FrameLength) != len(f.frame)+4 || raw.Stripped != 4 || raw.Protocol != 1 {
					t.Errorf("frame %d has %+v", n, raw)
				}
				router, ok := record[decoder.ExtendedRouter](s.Records)
				if ok != (n == 0) {
					t.Errorf("frame %d has a router: %v", n, ok)
				}
				if hop, _ := netip.AddrFromSlice(router.NextHop); n == 0 && (hop != netip.MustParseAddr("10.2.0.9") || router.SrcMaskLen != 24 || router.DstMaskLen != 24) {
					t.Errorf("next hop %s, prefixes of %d and %d bits", hop, router.SrcMaskLen, router.DstMaskLen)
				}
				if f.function == "" {
					continue
				}
				if len(got.discards) == 0 {
					t.Errorf("frame %d: no discard", n)
					continue
				}
				d := got.discards[0]
				got.discards = got.discards[1:]
				function, _ := record[decoder.ExtendedFunction](d.Records)
				raw = header(d.Records)
				if int(d.Input) != b.west.Index || d.Output != 0 || d.Reason != f.output&0xffff || d.Drops != 0 || function.Symbol != f.function ||
					!bytes.Equal(raw.HeaderData, f.frame[:min(len(f.frame), 128)]) {
					t.Errorf("frame %d: %+v, function %q", n, d, function.Symbol)
				}
			}
			if len(got.discards) > 0 {
				t.Errorf("%d discards too many", len(got.discards))
			}
		})
	}
}
