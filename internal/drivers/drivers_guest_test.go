// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// udp4 makes a UDP packet from the far end of a port to a host behind another one. id is in its payload.
func udp4(t *testing.T, in, out *port, id uint32, size int) []byte {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: in.hop(), DstMAC: in.mac, EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: in.ip4(2), DstIP: out.beyond4()}
	udp := &layers.UDP{SrcPort: layers.UDPPort(4000 + id%1000), DstPort: 5000}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, max(size-42, 16))
	copy(payload, mark)
	binary.BigEndian.PutUint32(payload[len(mark):], id)
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, udp, gopacket.Payload(payload)); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(b.Bytes())
}

// mark is in the payload of all packets of these tests.
const mark = "culvert!"

func marked(frame []byte) bool { return bytes.Contains(frame, []byte(mark)) }

// routed is a configuration with the IP router alone. A mirror for few routes takes little memory.
func routed(mode string, ports ...*port) string {
	var names []string
	for _, p := range ports {
		names = append(names, fmt.Sprintf("%q", p.name))
	}
	return fmt.Sprintf("interfaces = [%s]\nmode = %q\n[route]\nblocks4 = 64\nblocks6 = 1024\n", join(names), mode)
}

func join(words []string) string {
	var b bytes.Buffer
	for n, w := range words {
		if n > 0 {
			b.WriteString(", ")
		}
		b.WriteString(w)
	}
	return b.String()
}

// TestForward sends packets through culvert from one card to another of the same driver. As many arrive as were counted. A driver without
// XDP is refused in native mode, with a line that says so, and forwards in generic mode.
func TestForward(t *testing.T) {
	b := newBed(t)
	for _, driver := range slices.Sorted(maps.Keys(b.ports)) {
		t.Run(driver, func(t *testing.T) {
			in, out := b.pair(t, driver)
			b.ethtool(t, in, "-K", in.name, "rxvlan", "off")
			b.ethtool(t, out, "-K", out.name, "rxvlan", "off")
			mode := "native"
			if !b.native(t, in) {
				b.refused(t, routed(mode, in, out), in.name+" does not run XDP in its driver", "its driver has no native XDP")
				mode = "generic"
			}
			b.attach(t, routed(mode, in, out))
			before := b.counted(t, in)
			const packets = 100
			for n := range uint32(packets) {
				if err := in.far.Send(udp4(t, in, out, n, 100)); err != nil {
					t.Fatal(err)
				}
			}
			arrived := func() int { return len(b.out[out].of(marked)) }
			whole := wait(func() bool { return arrived() >= packets })
			moved := b.counted(t, in).since(before)
			t.Log(mode, moved)
			if !whole || arrived() != packets || moved.sum("fwd") != packets || moved.sum("lost") != 0 {
				t.Errorf("%d packets were sent, %d have arrived, counted were %v", packets, arrived(), moved)
			}
		})
	}
}
