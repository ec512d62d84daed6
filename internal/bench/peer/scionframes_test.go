// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/scionproto/scion/pkg/slayers"
	"github.com/scionproto/scion/pkg/slayers/path/scion"

	"culvert/internal/bench/load"
)

func TestScionFrames(t *testing.T) {
	const n = 70_000
	p := Path{
		Source: load.End{MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}},
		In:     load.End{MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}},
	}
	router, err := benchRouter()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name         string
		traffic      SCIONTraffic
		paths, hops  int
		size         int
		sourceAddrs  int
		firstSegment uint8
	}{
		{"cold", SCIONTraffic{Cold: true, Size: 138}, n, 3, 138, n, 3},
		{"warm", SCIONTraffic{Size: 138}, 1, 3, 138, n, 3},
		{"two segments", SCIONTraffic{Cold: true, Crossing: true, Size: 200}, n, 4, 200, n, 2},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			frames, err := tc.traffic.frames(router, p, n)
			if err != nil {
				t.Fatal(err)
			}
			macs, sources := map[[6]byte]bool{}, map[string]bool{}
			for i, f := range frames {
				if len(f) != tc.size {
					t.Fatalf("frame %d has %d bytes, want %d", i, len(f), tc.size)
				}
				var s slayers.SCION
				if err := s.DecodeFromBytes(f[load.MinUDPFrame:], gopacket.NilDecodeFeedback); err != nil {
					t.Fatalf("frame %d: %v", i, err)
				}
				raw := s.Path.(*scion.Raw)
				if raw.NumHops != tc.hops || raw.PathMeta.SegLen[0] != tc.firstSegment {
					t.Fatalf("frame %d: path %+v", i, raw.PathMeta)
				}
				hop, err := raw.GetCurrentHopField()
				if err != nil {
					t.Fatal(err)
				}
				macs[hop.Mac] = true
				sources[string(s.RawSrcAddr)] = true
			}
			// MACs of 48 bits, 70,000 of them, are almost certainly different.
			if len(macs) != tc.paths || len(sources) != tc.sourceAddrs {
				t.Errorf("%d hop fields and %d sources, want %d and %d", len(macs), len(sources), tc.paths, tc.sourceAddrs)
			}
		})
	}
}
