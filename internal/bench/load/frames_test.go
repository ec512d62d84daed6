// SPDX-License-Identifier: Apache-2.0

package load

import (
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

func TestUDPFrames(t *testing.T) {
	const n, size = 70_000, 138
	frames, err := UDPFrames(n, size)
	if err != nil {
		t.Fatal(err)
	}
	dst, src := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	flows := map[string]bool{}
	for i, f := range Addressed(frames, dst, src) {
		if len(f) != size {
			t.Fatalf("frame %d has %d bytes", i, len(f))
		}
		flows[string(f)] = true
		if i%1000 != 0 {
			continue
		}
		p := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default)
		if p.ErrorLayer() != nil {
			t.Fatalf("frame %d: %v", i, p.ErrorLayer().Error())
		}
		if err, sum := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4).VerifyChecksum(); err != nil || !sum.Valid {
			t.Fatalf("frame %d: IPv4 checksum %+v, error %v", i, sum, err)
		}
		eth := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
		if eth.DstMAC.String() != dst.String() || eth.SrcMAC.String() != src.String() {
			t.Fatalf("frame %d: from %s to %s", i, eth.SrcMAC, eth.DstMAC)
		}
	}
	if len(flows) != n {
		t.Errorf("%d different frames, want %d", len(flows), n)
	}
	for _, bad := range []int{0, MinUDPFrame - 1, 1 << 17} {
		if _, err := UDPFrames(1, bad); err == nil {
			t.Errorf("frames of %d bytes made", bad)
		}
	}
}
