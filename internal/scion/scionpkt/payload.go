// SPDX-License-Identifier: Apache-2.0

package scionpkt

import (
	"encoding/binary"
	"fmt"

	"github.com/gopacket/gopacket"
	"github.com/scionproto/scion/pkg/slayers"
	"github.com/scionproto/scion/pkg/slayers/path/scion"
)

// Kind is what a SCION packet carries.
type Kind uint8

const (
	// UDP is SCION/UDP.
	UDP Kind = iota
	// TCP is SCION/TCP, a header of 20 bytes.
	TCP
	// Raw is a protocol without ports: 253.
	Raw
	// EchoRequest and the next three are informational SCMP messages.
	EchoRequest
	EchoReply
	TracerouteRequest
	TracerouteReply
	// ErrorUDP is an SCMP error that quotes a SCION/UDP packet.
	ErrorUDP
	// ErrorEcho is an SCMP error that quotes an SCMP echo request.
	ErrorEcho
	// NumKinds is the number of kinds.
	NumKinds
)

// String returns the kind's name.
func (k Kind) String() string {
	return [...]string{
		"UDP", "TCP", "raw", "echo request", "echo reply", "traceroute request",
		"traceroute reply", "error quoting UDP", "error quoting echo", "?",
	}[min(k, NumKinds)]
}

// Payload is what follows the SCION header.
type Payload struct {
	Kind Kind
	// Size is the number of bytes after the innermost header.
	Size int
	// SrcPort and DstPort are the ports of UDP and TCP. For SCMP, the identifier is DstPort in replies, and
	// SrcPort in requests and in the packet that an error quotes.
	SrcPort, DstPort uint16
	// HopByHop and EndToEnd add extension headers with one padding option. The values are the lengths of
	// that option's data in bytes. Negative means no header.
	HopByHop, EndToEnd int
	// ErrorType is the SCMP type of an error: 1, 2, 4, 5 or 6.
	ErrorType slayers.SCMPType
}

func (p *Payload) serialize(
	b gopacket.SerializeBuffer, opts gopacket.SerializeOptions, hdr *slayers.SCION,
) error {
	proto := p.protocol()
	hdr.NextHdr = proto
	var ls []gopacket.SerializableLayer
	if p.HopByHop >= 0 {
		ext := &slayers.HopByHopExtn{Options: []*slayers.HopByHopOption{{
			OptType: slayers.OptTypePadN, OptData: make([]byte, p.HopByHop),
		}}}
		ext.NextHdr = proto
		if p.EndToEnd >= 0 {
			ext.NextHdr = slayers.End2EndClass
		}
		hdr.NextHdr = slayers.HopByHopClass
		ls = append(ls, ext)
	}
	if p.EndToEnd >= 0 {
		ext := &slayers.EndToEndExtn{Options: []*slayers.EndToEndOption{{
			OptType: slayers.OptTypePadN, OptData: make([]byte, p.EndToEnd),
		}}}
		ext.NextHdr = proto
		if p.HopByHop < 0 {
			hdr.NextHdr = slayers.End2EndClass
		}
		ls = append(ls, ext)
	}
	l4, err := p.layers(hdr)
	if err != nil {
		return err
	}
	return gopacket.SerializeLayers(b, opts, append(ls, l4...)...)
}

// protocol is the SCION protocol number of the kind.
func (p *Payload) protocol() slayers.L4ProtocolType {
	switch p.Kind {
	case UDP:
		return slayers.L4UDP
	case TCP:
		return slayers.L4TCP
	case Raw:
		return slayers.ExperimentationAndTesting
	default:
		return slayers.L4SCMP
	}
}

func (p *Payload) layers(hdr *slayers.SCION) ([]gopacket.SerializableLayer, error) {
	data := gopacket.Payload(make([]byte, p.Size))
	for i := range data {
		data[i] = byte(i)
	}
	switch p.Kind {
	case UDP:
		u := &slayers.UDP{SrcPort: p.SrcPort, DstPort: p.DstPort}
		u.SetNetworkLayerForChecksum(hdr)
		return []gopacket.SerializableLayer{u, data}, nil
	case TCP:
		h := make([]byte, 20, 20+len(data))
		binary.BigEndian.PutUint16(h[0:], p.SrcPort)
		binary.BigEndian.PutUint16(h[2:], p.DstPort)
		h[12] = 5 << 4
		return []gopacket.SerializableLayer{gopacket.Payload(append(h, data...))}, nil
	case Raw:
		return []gopacket.SerializableLayer{data}, nil
	}
	var msg gopacket.SerializableLayer
	scmp := &slayers.SCMP{}
	scmp.SetNetworkLayerForChecksum(hdr)
	switch p.Kind {
	case EchoRequest:
		scmp.TypeCode = slayers.CreateSCMPTypeCode(slayers.SCMPTypeEchoRequest, 0)
		msg = &slayers.SCMPEcho{Identifier: p.SrcPort, SeqNumber: 7}
	case EchoReply:
		scmp.TypeCode = slayers.CreateSCMPTypeCode(slayers.SCMPTypeEchoReply, 0)
		msg = &slayers.SCMPEcho{Identifier: p.DstPort, SeqNumber: 7}
	case TracerouteRequest:
		scmp.TypeCode = slayers.CreateSCMPTypeCode(slayers.SCMPTypeTracerouteRequest, 0)
		msg = &slayers.SCMPTraceroute{Identifier: p.SrcPort, Sequence: 7}
	case TracerouteReply:
		scmp.TypeCode = slayers.CreateSCMPTypeCode(slayers.SCMPTypeTracerouteReply, 0)
		msg = &slayers.SCMPTraceroute{Identifier: p.DstPort, Sequence: 7, IA: hdr.SrcIA, Interface: 1}
	default:
		quote, err := p.quote(hdr)
		if err != nil {
			return nil, err
		}
		scmp.TypeCode = slayers.CreateSCMPTypeCode(p.ErrorType, 0)
		msg, data = errorMessage(p.ErrorType, hdr), quote
	}
	return []gopacket.SerializableLayer{scmp, msg, data}, nil
}

func errorMessage(t slayers.SCMPType, hdr *slayers.SCION) gopacket.SerializableLayer {
	switch t {
	case slayers.SCMPTypePacketTooBig:
		return &slayers.SCMPPacketTooBig{MTU: 1280}
	case slayers.SCMPTypeParameterProblem:
		return &slayers.SCMPParameterProblem{Pointer: 12}
	case slayers.SCMPTypeExternalInterfaceDown:
		return &slayers.SCMPExternalInterfaceDown{IA: hdr.SrcIA, IfID: 1}
	case slayers.SCMPTypeInternalConnectivityDown:
		return &slayers.SCMPInternalConnectivityDown{IA: hdr.SrcIA, Ingress: 1, Egress: 2}
	default:
		return &slayers.SCMPDestinationUnreachable{}
	}
}

// quote returns the packet that an SCMP error quotes, as the receiver of the error could have sent it.
func (p *Payload) quote(hdr *slayers.SCION) (gopacket.Payload, error) {
	offending := &slayers.SCION{
		FlowID: 1, PathType: scion.PathType,
		SrcIA: hdr.DstIA, DstIA: hdr.SrcIA,
		SrcAddrType: hdr.DstAddrType, RawSrcAddr: hdr.RawDstAddr,
		DstAddrType: hdr.SrcAddrType, RawDstAddr: hdr.RawSrcAddr,
	}
	raw, ok := hdr.Path.(*scion.Decoded)
	if !ok {
		return nil, fmt.Errorf("cannot quote a packet with a path of type %T", hdr.Path)
	}
	offending.Path = raw
	inner := Payload{
		Kind: UDP, Size: p.Size, SrcPort: p.SrcPort, DstPort: p.DstPort, HopByHop: -1, EndToEnd: -1,
	}
	if p.Kind == ErrorEcho {
		inner.Kind = EchoRequest
	}
	b := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := inner.serialize(b, opts, offending); err != nil {
		return nil, err
	}
	if err := offending.SerializeTo(b, opts); err != nil {
		return nil, err
	}
	// The quote is cut so that the whole error does not exceed the limit of SCMP.
	limit := slayers.MaxSCMPPacketLen - slayers.CmnHdrLen - hdr.AddrHdrLen() - hdr.Path.Len() - 32
	return gopacket.Payload(b.Bytes()[:min(len(b.Bytes()), max(limit, 0))]), nil
}
