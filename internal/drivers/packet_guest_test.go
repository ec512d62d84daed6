// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// mark is in the payload of all packets of these tests. A 32-bit number of the packet follows it.
const mark = "culvert!"

// packet is a UDP packet over IPv4 that comes in by a port.
type packet struct {
	in  *port
	dst net.IP
	// id is the packet's number, and size that of the frame in bytes, without a tag.
	id    uint32
	size  int
	ttl   uint8
	dport uint16
	// vlan is the ID of a tag, 0 for none. It is in the frame, and the packet is from a network of its own.
	vlan uint16
	// flow is added to the source port, and the packet's number is not, unless it is 0.
	flow uint16
}

// frame returns the packet as it comes in.
func (p packet) frame(t *testing.T) []byte {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: p.in.hop(), DstMAC: p.in.mac, EthernetType: layers.EthernetTypeIPv4}
	headers := []gopacket.SerializableLayer{eth}
	src := p.in.ip4(2)
	if p.vlan != 0 {
		eth.EthernetType = layers.EthernetTypeDot1Q
		headers = append(headers, &layers.Dot1Q{VLANIdentifier: p.vlan, Type: layers.EthernetTypeIPv4})
		src = p.in.tagged4(2)
	}
	ip := &layers.IPv4{Version: 4, TTL: max(p.ttl, 1), Protocol: layers.IPProtocolUDP, SrcIP: src, DstIP: p.dst, Flags: layers.IPv4DontFragment}
	udp := &layers.UDP{SrcPort: layers.UDPPort(p.sport()), DstPort: layers.UDPPort(p.dport)}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, max(p.size-42, len(mark)+4))
	for n := range payload {
		payload[n] = byte(n)
	}
	copy(payload, mark)
	binary.BigEndian.PutUint32(payload[len(mark):], p.id)
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		append(headers, ip, udp, gopacket.Payload(payload))...); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(b.Bytes())
}

// sport is the source port.
func (p packet) sport() uint16 {
	if p.flow > 0 {
		return 6000 + p.flow
	}
	return uint16(4000 + p.id%1000)
}

// to makes packets by port in for a host, with sizes from the shortest to the longest of an ordinary frame.
func to(in *port, dst net.IP, count int) (all []packet) {
	sizes := []int{60, 61, 100, 512, 1024, 1400, 1513, 1514}
	for n := range count {
		all = append(all, packet{in: in, dst: dst, id: uint32(n), size: sizes[n%len(sizes)], ttl: 64, dport: 5000})
	}
	return all
}

// each returns packets that differ from others in one point.
func each(all []packet, change func(*packet)) []packet {
	all = slices.Clone(all)
	for n := range all {
		change(&all[n])
	}
	return all
}

// payloads returns the payload of marked frames, which follows the mark, by the number of the packet. Padding of short frames is left
// out.
func payloads(frames [][]byte) map[uint32][]byte {
	found := make(map[uint32][]byte)
	for _, f := range frames {
		if at := bytes.Index(f, []byte(mark)); at >= 0 && len(f) >= at+len(mark)+4 {
			found[binary.BigEndian.Uint32(f[at+len(mark):])] = f[at:]
		}
	}
	return found
}

func marked(frame []byte) bool { return bytes.Contains(frame, []byte(mark)) }

// tag returns the ID of a frame's VLAN tag, 0 if it has none.
func tag(frame []byte) uint16 {
	if len(frame) < 18 || binary.BigEndian.Uint16(frame[12:]) != uint16(layers.EthernetTypeDot1Q) {
		return 0
	}
	return binary.BigEndian.Uint16(frame[14:]) & 0xfff
}

// icmp tells whether a frame is an ICMP packet of a type over IPv4 that quotes a marked packet or what has come in.
func icmp(kind byte) func([]byte) bool {
	return func(f []byte) bool {
		return len(f) > 34 && binary.BigEndian.Uint16(f[12:]) == uint16(layers.EthernetTypeIPv4) && f[23] == 1 && f[34] == kind
	}
}
