// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

// Protocols of IP.
const (
	ICMP   = 1
	TCP    = 6
	UDP    = 17
	ICMPv6 = 58

	hopByHop  = 0
	fragments = 44
)

// Lengths of headers, in bytes.
const (
	ethernetLength = 14
	vlanLength     = 4
	ipv4Length     = 20
	ipv6Length     = 40
	udpLength      = 8
)

// ErrCut is the error for a frame whose captured part ends within its headers.
var ErrCut = errors.New("the captured part of the frame ends within its headers")

// Parse reads a frame as the programs do, which look only at frames to the interface's own address.
func Parse(f Frame, own [6]byte) (*Packet, error) {
	p := &Packet{Frame: f}
	if len(f.Data) < ethernetLength {
		return p, f.short()
	}
	if p.Own = [6]byte(f.Data) == own; !p.Own {
		return p, nil
	}
	at, kind := ethernetLength, binary.BigEndian.Uint16(f.Data[12:])
	if kind == 0x8100 {
		if len(f.Data) < at+vlanLength {
			return p, f.short()
		}
		if p.VLAN = binary.BigEndian.Uint16(f.Data[at:]) & 0xfff; p.VLAN == 0 { // a priority and no VLAN
			return p, nil
		}
		kind, at = binary.BigEndian.Uint16(f.Data[at+2:]), at+vlanLength
	}
	switch kind {
	case 0x0800:
		return p, p.ipv4(at)
	case 0x86dd:
		return p, p.ipv6(at)
	}
	return p, nil
}

// short is the error for a frame that ends too early: nil if it is all there was.
func (f *Frame) short() error {
	if f.Cut() {
		return ErrCut
	}
	return nil
}

func (p *Packet) ipv4(at int) error {
	if len(p.Data) < at+ipv4Length {
		return p.short()
	}
	ip := p.Data[at:]
	p.IP, p.L3, p.Protocol, p.TTL = 4, at, ip[9], ip[8]
	p.Src, p.Dst = netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:]))
	p.Fragment = binary.BigEndian.Uint16(ip[6:])&0x3fff != 0
	length := int(binary.BigEndian.Uint16(ip[2:]))
	p.Options = ip[0] > 0x45 && ip[0] < 0x50
	p.NoForward = ip[0] != 0x45 || length < ipv4Length || at+length > p.Length || sum(ip[:ipv4Length]) != 0xffff
	if p.NoForward {
		return nil
	}
	p.IPLength = length
	return p.transport(at+ipv4Length, length-ipv4Length)
}

func (p *Packet) ipv6(at int) error {
	if len(p.Data) < at+ipv6Length {
		return p.short()
	}
	ip := p.Data[at:]
	p.IP, p.L3, p.Protocol, p.TTL = 6, at, ip[6], ip[7]
	p.Src, p.Dst = netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:]))
	length := int(binary.BigEndian.Uint16(ip[4:]))
	if p.NoForward = ip[0]>>4 != 6 || at+ipv6Length+length > p.Length; p.NoForward {
		return nil
	}
	p.IPLength = ipv6Length + length
	p.Options = p.Protocol == hopByHop
	p.NoForward = p.Options
	p.Fragment = p.Protocol == fragments
	return p.transport(at+ipv6Length, length)
}

// transport reads the header behind the IP header. length is how many bytes the IP packet has from there on.
func (p *Packet) transport(at, length int) error {
	if p.Fragment || p.NoForward || p.Protocol != TCP && p.Protocol != UDP || length < udpLength {
		return nil
	}
	if len(p.Data) < at+udpLength {
		return p.short()
	}
	l4 := p.Data[at:]
	p.SrcPort, p.DstPort = binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
	p.Ports = true
	if p.Protocol != UDP || p.VLAN != 0 || int(binary.BigEndian.Uint16(l4[4:])) != length {
		return nil
	}
	p.Checksum = binary.BigEndian.Uint16(l4[6:])
	if p.UDP = p.IP == 4 || p.Checksum != 0; p.UDP { // RFC 8200, 8.1
		p.PayloadLength = length - udpLength
		p.Payload = l4[udpLength:min(len(l4), length)]
	}
	return nil
}

// sum adds up the 16-bit words of b in ones' complement.
func sum(b []byte) uint16 {
	var s uint32
	for ; len(b) > 1; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}
