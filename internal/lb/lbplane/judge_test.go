// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"culvert/internal/testbed"
)

// linkPart splits a frame into its VLAN tag, -1 for none, its EtherType and the payload.
func linkPart(frame []byte) (tag int, etherType uint16, packet []byte, err error) {
	if len(frame) < 18 {
		return 0, 0, nil, fmt.Errorf("a frame of %d bytes", len(frame))
	}
	if etherType = binary.BigEndian.Uint16(frame[12:]); etherType != 0x8100 {
		return -1, etherType, frame[14:], nil
	}
	return int(binary.BigEndian.Uint16(frame[14:])), binary.BigEndian.Uint16(frame[16:]), frame[18:], nil
}

// ipPart returns the VLAN tag and the IP packet of a frame, without the padding of the frame.
func ipPart(frame []byte) (tag int, packet []byte, err error) {
	tag, etherType, b, err := linkPart(frame)
	if err != nil {
		return 0, nil, err
	}
	size := 0
	switch {
	case etherType == 0x0800 && len(b) >= 20 && b[0] == 0x45:
		if size = int(binary.BigEndian.Uint16(b[2:])); testbed.OnesSum(b[:20]) != 0xffff {
			return 0, nil, fmt.Errorf("wrong IPv4 checksum in %x", b[:20])
		}
	case etherType == 0x86dd && len(b) >= 40 && b[0]>>4 == 6:
		size = 40 + int(binary.BigEndian.Uint16(b[4:]))
	default:
		return 0, nil, fmt.Errorf("EtherType %#x before %x", etherType, b)
	}
	if size < 20 || size > len(b) {
		return 0, nil, fmt.Errorf("an IP packet of %d bytes in %d", size, len(b))
	}
	return tag, b[:size], nil
}

// checkForwarded returns an error unless out is the frame to send to a backend for a frame in of a client.
func checkForwarded(in, out []byte, backend Backend) error {
	_, inner, err := ipPart(in)
	if err != nil {
		return fmt.Errorf("what came in: %w", err)
	}
	tag, packet, err := ipPart(out)
	if err != nil {
		return err
	}
	if !bytes.Equal(out[:6], backend.Hop.DstMAC[:]) || !bytes.Equal(out[6:12], backend.Hop.SrcMAC[:]) {
		return fmt.Errorf("MAC addresses %x", out[:12])
	}
	if want := int(backend.Hop.VLAN&0xfff) | -flagInt(backend.Hop.VLAN == 0); tag != want {
		return fmt.Errorf("tag %d, want %d", tag, want)
	}
	if backend.Encap == L2 {
		if !bytes.Equal(packet, inner) {
			return errors.New("the packet was changed")
		}
		return nil
	}
	rest, err := checkOuter(packet, inner, backend)
	if err != nil {
		return err
	}
	if !bytes.Equal(rest, inner) {
		return fmt.Errorf("the packet was changed:\n%x\n%x", inner, rest)
	}
	link := 14
	if tag >= 0 {
		link = 18
	}
	if len(out) != link+len(packet) {
		return fmt.Errorf("%d bytes behind the packet", len(out)-link-len(packet))
	}
	return decodes(out)
}

func flagInt(on bool) int {
	if on {
		return 1
	}
	return 0
}

// checkOuter checks each byte of the outer headers and returns the packet behind them.
func checkOuter(packet, inner []byte, backend Backend) (rest []byte, err error) {
	inner6 := inner[0]>>4 == 6
	tos := inner[1]
	if inner6 {
		tos = inner[0]<<4 | inner[1]>>4
	}
	proto := map[bool]byte{false: 4, true: 41}[inner6]
	if backend.Encap == GUE {
		proto = 17
	}
	var want []byte
	var src netip.Addr
	if backend.Addr.Is4() {
		src, _ = netip.AddrFromSlice(packet[12:16])
		want = binary.BigEndian.AppendUint16([]byte{0x45, tos}, uint16(len(packet)))
		want = append(want, 0, 0, 0x40, 0, 64, proto)
		want = append(want, packet[10:16]...) // ipPart checks the checksum, and the source is checked below
		want = append(want, backend.Addr.AsSlice()...)
	} else {
		src, _ = netip.AddrFromSlice(packet[8:24])
		want = []byte{0x60 | tos>>4, tos<<4 | packet[1]&15, packet[2], packet[3]} // the flow label depends on the flow
		want = binary.BigEndian.AppendUint16(want, uint16(len(packet)-40))
		want = append(want, proto, 64)
		want = append(want, packet[8:24]...)
		want = append(want, backend.Addr.AsSlice()...)
	}
	if !bytes.Equal(packet[:len(want)], want) {
		return nil, fmt.Errorf("outer header\n%x, want\n%x", packet[:len(want)], want)
	}
	if !backend.Source.Contains(src) || backend.Source.IsSingleIP() && src != backend.Source.Addr() {
		return nil, fmt.Errorf("outer source %v, want one in %v", src, backend.Source)
	}
	rest = packet[len(want):]
	if backend.Encap != GUE {
		return rest, nil
	}
	if len(rest) < 8 || binary.BigEndian.Uint16(rest) < 0xc000 || binary.BigEndian.Uint16(rest[2:]) != backend.GUEPort ||
		int(binary.BigEndian.Uint16(rest[4:])) != len(rest) || rest[6] != 0 || rest[7] != 0 {
		return nil, fmt.Errorf("UDP header %x before %d bytes", rest[:8], len(rest)-8)
	}
	return rest[8:], nil
}

// decodes returns an error unless gopacket decodes a frame too.
func decodes(frame []byte) error {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	if n := len(p.Layers()); n < 2 {
		return fmt.Errorf("gopacket finds %d layers in %x", n, frame)
	}
	if p.NetworkLayer() == nil {
		return fmt.Errorf("gopacket finds no IP in %x", frame)
	}
	return nil
}

// checkReply returns an error unless out is an ICMP packet that answers the frame in. It returns its type, code, second word and
// the rest.
func checkReply(in, out []byte) (typ, code byte, word uint32, rest []byte, err error) {
	fail := func(format string, a ...any) (byte, byte, uint32, []byte, error) {
		return 0, 0, 0, nil, fmt.Errorf(format, a...)
	}
	tag, asked, err := ipPart(in)
	if err != nil {
		return fail("what came in: %w", err)
	}
	outTag, packet, err := ipPart(out)
	if err != nil {
		return fail("%w", err)
	}
	if !bytes.Equal(out[:6], in[6:12]) || !bytes.Equal(out[6:12], in[:6]) || tag != outTag {
		return fail("MAC addresses %x, tag %d", out[:12], outTag)
	}
	var icmp []byte
	if packet[0]>>4 == 4 {
		icmp = packet[20:]
		if packet[8] != 64 || packet[9] != 1 || !bytes.Equal(packet[12:16], asked[16:20]) || !bytes.Equal(packet[16:20], asked[12:16]) {
			return fail("header %x in answer to %x", packet[:20], asked[:20])
		}
	} else {
		icmp = packet[40:]
		if packet[6] != 58 || packet[7] != 64 || !bytes.Equal(packet[8:24], asked[24:40]) || !bytes.Equal(packet[24:40], asked[8:24]) {
			return fail("header %x in answer to %x", packet[:40], asked[:40])
		}
	}
	if icmpSum(packet) != 0xffff {
		return fail("wrong checksum in %x", packet)
	}
	if p := gopacket.NewPacket(out, layers.LayerTypeEthernet, gopacket.NoCopy); p.ErrorLayer() != nil {
		return fail("gopacket: %v", p.ErrorLayer().Error())
	}
	return icmp[0], icmp[1], binary.BigEndian.Uint32(icmp[4:]), icmp[8:], nil
}

// icmpSum returns the sum of all that the checksum of an ICMP or ICMPv6 packet covers. It is 0xffff if the checksum is right.
func icmpSum(packet []byte) uint16 {
	if packet[0]>>4 == 4 {
		return testbed.OnesSum(packet[20:])
	}
	return testbed.OnesSum(packet[8:40], packet[4:6], []byte{0, 58}, packet[40:])
}
