// SPDX-License-Identifier: Apache-2.0

package pipelinefuzz

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

var be = binary.BigEndian

// Protocol numbers and EtherTypes.
const (
	typeIPv4, typeIPv6, typeVLAN, typeQinQ = 0x0800, 0x86dd, 0x8100, 0x88a8

	protoICMP, protoIPIP, protoTCP, protoUDP, protoIPv6, protoFragment, protoICMPv6 = 1, 4, 6, 17, 41, 44, 58
)

// view is a decoded frame. The decoder shares no code with the programs.
type view struct {
	tags []uint16 // as they stand there, the outermost first
	kind uint16   // EtherType behind them
	l3   int
	ip   int // 4 or 6 for a whole IP packet, else 0
	// packet has header and payload, without what fills the frame up.
	packet   []byte
	src, dst netip.Addr
	head     int // of IP without extension headers, bytes
	proto    byte
	frag     bool // a fragment, of IPv4 or with the header right behind IPv6's
	later    bool // and not the first one
	more     bool
	l4       int // where the transport header is in packet; behind a fragment header too
	l4proto  byte
	ttl      byte
}

// sum returns the one's complement sum of RFC 1071. It is 0xffff over data with a right checksum.
func sum(parts ...[]byte) uint16 {
	total := 0
	for _, b := range parts {
		for n, v := range b {
			if n%2 == 0 {
				total += int(v) << 8
			} else {
				total += int(v)
			}
		}
	}
	for total > 0xffff {
		total = total&0xffff + total>>16
	}
	return uint16(total)
}

// decode reads a frame. ip is 0 for a malformed packet.
func decode(frame []byte) (v view) {
	v.l3 = 14
	if len(frame) < 14 {
		return v
	}
	v.kind = be.Uint16(frame[12:])
	for (v.kind == typeVLAN || v.kind == typeQinQ) && len(frame) >= v.l3+4 {
		v.tags = append(v.tags, be.Uint16(frame[v.l3:]))
		v.kind = be.Uint16(frame[v.l3+2:])
		v.l3 += 4
	}
	b := frame[v.l3:]
	switch v.kind {
	case typeIPv4:
		if len(b) < 20 || b[0]>>4 != 4 {
			return v
		}
		v.head = int(b[0]&15) * 4
		size := int(be.Uint16(b[2:]))
		if v.head < 20 || size < v.head || size > len(b) || sum(b[:v.head]) != 0xffff {
			return v
		}
		v.ip, v.packet = 4, b[:size]
		v.src, v.dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		v.proto, v.ttl = b[9], b[8]
		part := be.Uint16(b[6:])
		v.frag, v.later, v.more = part&0x3fff != 0, part&0x1fff != 0, part&0x2000 != 0
		v.l4, v.l4proto = v.head, v.proto
	case typeIPv6:
		if len(b) < 40 || b[0]>>4 != 6 || 40+int(be.Uint16(b[4:])) > len(b) {
			return v
		}
		v.ip, v.head, v.packet = 6, 40, b[:40+int(be.Uint16(b[4:]))]
		v.src, v.dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		v.proto, v.ttl = b[6], b[7]
		v.l4, v.l4proto = 40, v.proto
		if v.proto == protoFragment && len(v.packet) >= 48 {
			part := be.Uint16(b[42:])
			v.frag, v.later, v.more = true, part&0xfff8 != 0, part&1 != 0
			v.l4, v.l4proto = 48, b[40]
		}
	}
	return v
}

// tag returns the VLAN of a frame with one tag that the pipeline reads, 0 for an untagged frame, and -1 for other tags.
func (v *view) tag(frame []byte) int {
	switch {
	case len(v.tags) == 0:
		return 0
	case len(v.tags) == 1 && be.Uint16(frame[12:]) == typeVLAN && v.tags[0]&0xfff != 0:
		return int(v.tags[0] & 0xfff)
	}
	return -1
}

// ports returns the ports of TCP or UDP, if the header is complete.
func (v *view) ports() (src, dst uint16, ok bool) {
	need := map[byte]int{protoTCP: 20, protoUDP: 8}[v.l4proto]
	if v.ip == 0 || need == 0 || v.later || len(v.packet) < v.l4+need {
		return 0, 0, false
	}
	return be.Uint16(v.packet[v.l4:]), be.Uint16(v.packet[v.l4+2:]), true
}

// transportSum is 0xffff if the checksum of TCP, UDP, ICMP or ICMPv6 is right.
func (v *view) transportSum() uint16 {
	body := v.packet[v.l4:]
	if v.l4proto == protoICMP {
		return sum(body)
	}
	pseudo := slices.Concat(v.src.AsSlice(), v.dst.AsSlice(), be.AppendUint32(nil, uint32(len(body))), []byte{0, 0, 0, v.l4proto})
	return sum(pseudo, body)
}

// wellFormed returns what is malformed in a frame that leaves. An answer keeps the tags of the packet. The filter reads packets
// with up to two.
func wellFormed(frame []byte, answer bool) error {
	v := decode(frame)
	if v.ip == 0 || len(v.tags) > 2 || !answer && v.tag(frame) < 0 {
		return fmt.Errorf("no whole IP packet behind one tag at most: %x", frame[:min(len(frame), 80)])
	}
	if frame[0]&1 != 0 || frame[6]&1 != 0 {
		return fmt.Errorf("it goes to or comes from a group address: %x", frame[:12])
	}
	// gopacket decodes the packet too. A transport header that came in malformed leaves malformed.
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	if p.NetworkLayer() == nil {
		return fmt.Errorf("gopacket finds no IP: %v", p.ErrorLayer())
	}
	return nil
}

// tunnelled returns the packet in a tunnel of the load balancer, by the outer packet's protocol.
func tunnelled(v *view, port uint16) ([]byte, error) {
	body := v.packet[v.l4:]
	switch {
	case v.frag:
		return nil, errors.New("a fragment leaves for a tunnel")
	case v.l4proto == protoIPIP && body[0]>>4 == 4, v.l4proto == protoIPv6 && body[0]>>4 == 6:
		return body, nil
	case v.l4proto != protoUDP:
		return nil, fmt.Errorf("protocol %d in front of version %d", v.l4proto, body[0]>>4)
	}
	if len(body) < 8 || be.Uint16(body) < 0xc000 || be.Uint16(body[2:]) != port || int(be.Uint16(body[4:])) != len(body) {
		return nil, fmt.Errorf("UDP header %x in front of %d bytes", body[:8], len(body)-8)
	}
	if be.Uint16(body[6:]) != 0 && v.transportSum() != 0xffff {
		return nil, errors.New("wrong UDP checksum outside")
	}
	return body[8:], nil
}
