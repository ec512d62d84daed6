// SPDX-License-Identifier: Apache-2.0

package scionpkt

import (
	"fmt"

	"github.com/gopacket/gopacket"
	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/scrypto"
	"github.com/scionproto/scion/pkg/slayers"
	"github.com/scionproto/scion/pkg/slayers/path"
	"github.com/scionproto/scion/pkg/slayers/path/scion"
)

// Direction says where a packet enters and leaves at the router under test.
type Direction uint8

const (
	// ExternalToExternal leaves for another AS on an interface of this router.
	ExternalToExternal Direction = iota
	// ExternalToSibling leaves for another AS by a sibling router.
	ExternalToSibling
	// SiblingToExternal has entered the AS at a sibling router.
	SiblingToExternal
	// InsideToExternal is from a host of the local AS.
	InsideToExternal
	// ExternalToHost is for a host of the local AS.
	ExternalToHost
	// NumDirections is the number of directions.
	NumDirections
)

// String returns the direction's name, such as "external->sibling".
func (d Direction) String() string {
	return [...]string{
		"external->external", "external->sibling", "sibling->external", "inside->external",
		"external->host", "?",
	}[min(d, NumDirections)]
}

// Hop is one hop field of a path.
type Hop struct {
	ConsIngress, ConsEgress   uint16
	ExpTime                   uint8
	IngressAlert, EgressAlert bool
	// Own is true for a hop of the local AS. Build computes its MAC. For other hops it uses MAC.
	Own bool
	MAC [path.MacLen]byte
}

// Segment is one info field of a path with its hop fields, in the order of travel.
type Segment struct {
	ConsDir, Peer bool
	// Timestamp is in seconds of Unix time.
	Timestamp uint32
	// Beta is the SegID for the MAC of the own hop. In a segment without an own hop, it is the SegID in the
	// packet.
	Beta uint16
	Hops []Hop
}

// Spec describes a packet as it arrives at the router under test. Equal specs build equal frames.
type Spec struct {
	// Direction and MustForward do not change the frame. MustForward is true if a fast path has to
	// forward the packet itself.
	Direction   Direction
	MustForward bool
	// Link indexes Network.Links. The frame arrives by this link.
	Link  int
	Outer Outer
	// External is true if the packet has just come from another AS. A segment against its construction
	// direction then has the SegID of the previous hop.
	External bool
	// Key is the forwarding key for the MACs of own hops.
	Key [16]byte

	TrafficClass     uint8
	FlowID           uint32
	SrcIA, DstIA     addr.IA
	SrcHost, DstHost addr.Host
	Segments         []Segment
	// CurrINF and CurrHF point at the current info and hop field.
	CurrINF, CurrHF uint8
	Payload         Payload
}

// peering reports whether the current hop field is next to a peering link.
func (s *Spec) peering() bool {
	if len(s.Segments) != 2 || !s.Segments[s.CurrINF].Peer {
		return false
	}
	boundary := len(s.Segments[0].Hops)
	return int(s.CurrHF) == boundary-1 || int(s.CurrHF) == boundary
}

// Build makes the frame. It returns an error for packets that have no encoding: with more than 64 hop
// fields, a header of more than 1020 bytes, or a datagram of more than 65535 bytes.
func (s *Spec) Build() ([]byte, error) {
	p, err := s.path()
	if err != nil {
		return nil, err
	}
	hdr := &slayers.SCION{
		TrafficClass: s.TrafficClass, FlowID: s.FlowID,
		PathType: scion.PathType, Path: p,
		SrcIA: s.SrcIA, DstIA: s.DstIA,
	}
	if err := hdr.SetSrcAddr(s.SrcHost); err != nil {
		return nil, fmt.Errorf("packet: source host: %w", err)
	}
	if err := hdr.SetDstAddr(s.DstHost); err != nil {
		return nil, fmt.Errorf("packet: destination host: %w", err)
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := s.Payload.serialize(buf, opts, hdr); err != nil {
		return nil, fmt.Errorf("packet: payload: %w", err)
	}
	if err := hdr.SerializeTo(buf, opts); err != nil {
		return nil, fmt.Errorf("packet: SCION header: %w", err)
	}
	if n := len(buf.Bytes()); n > 65535-IPv4Len-UDPLen {
		return nil, fmt.Errorf("packet: %d bytes do not fit a UDP datagram", n)
	}
	return s.Outer.Frame(buf.Bytes())
}

// path returns the packet's path, with the MACs of own hops and the SegIDs at the current hop.
func (s *Spec) path() (*scion.Decoded, error) {
	if len(s.Segments) == 0 || len(s.Segments) > scion.MaxINFs {
		return nil, fmt.Errorf("packet: %d segments, want 1 to 3", len(s.Segments))
	}
	mac, err := scrypto.InitMac(s.Key[:])
	if err != nil {
		return nil, fmt.Errorf("packet: key: %w", err)
	}
	p := &scion.Decoded{}
	p.PathMeta.CurrINF, p.PathMeta.CurrHF = s.CurrINF, s.CurrHF
	p.NumINF = len(s.Segments)
	buf := make([]byte, path.MACBufferSize)
	for i, seg := range s.Segments {
		info := path.InfoField{
			ConsDir: seg.ConsDir, Peer: seg.Peer, SegID: seg.Beta, Timestamp: seg.Timestamp,
		}
		for _, h := range seg.Hops {
			hop := path.HopField{
				IngressRouterAlert: h.IngressAlert, EgressRouterAlert: h.EgressAlert,
				ExpTime: h.ExpTime, ConsIngress: h.ConsIngress, ConsEgress: h.ConsEgress, Mac: h.MAC,
			}
			if h.Own {
				// A segment has at most one own hop, so SegID is still Beta here.
				hop.Mac = path.MAC(mac, info, hop, buf)
				if len(p.HopFields) == int(s.CurrHF) && s.External && !seg.ConsDir && !s.peering() {
					info.UpdateSegID(hop.Mac)
				}
			}
			p.HopFields = append(p.HopFields, hop)
		}
		p.InfoFields = append(p.InfoFields, info)
		if len(seg.Hops) > 63 {
			return nil, fmt.Errorf("packet: %d hop fields in segment %d, at most 63", len(seg.Hops), i)
		}
		p.PathMeta.SegLen[i] = uint8(len(seg.Hops))
	}
	p.NumHops = len(p.HopFields)
	if p.NumHops > scion.MaxHops {
		return nil, fmt.Errorf("packet: %d hop fields, at most %d", p.NumHops, scion.MaxHops)
	}
	return p, nil
}
