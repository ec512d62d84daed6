// SPDX-License-Identifier: Apache-2.0

package cbpftest

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// TestFrames decodes frames with gopacket, which finds all kinds of layers. The same seed gives the same frames.
func TestFrames(t *testing.T) {
	seen := map[gopacket.LayerType]int{}
	rng, again := rand.New(rand.NewPCG(1, 1)), rand.New(rand.NewPCG(1, 1))
	for range 3000 {
		frame := Frame(rng)
		if !bytes.Equal(frame, Frame(again)) {
			t.Fatal("two frames from one seed")
		}
		for _, l := range gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy).Layers() {
			seen[l.LayerType()]++
		}
	}
	for _, l := range []gopacket.LayerType{layers.LayerTypeDot1Q, layers.LayerTypeMPLS, layers.LayerTypePPPoE,
		layers.LayerTypeARP, layers.LayerTypeLLC, layers.LayerTypeIPv4, layers.LayerTypeIPv6, layers.LayerTypeTCP,
		layers.LayerTypeUDP, layers.LayerTypeICMPv4, layers.LayerTypeICMPv6, layers.LayerTypeSCTP,
		layers.LayerTypeIPv6HopByHop, layers.LayerTypeIPv6Fragment, layers.LayerTypeIPv6Routing,
		layers.LayerTypeIPv6Destination} {
		if seen[l] < 20 {
			t.Errorf("%d of 3,000 frames have %s", seen[l], l)
		}
	}
	for _, f := range Frames(rng, 1000) {
		if len(f) < MinFrame {
			t.Fatalf("a frame of %d bytes", len(f))
		}
	}
}
