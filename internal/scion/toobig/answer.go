// SPDX-License-Identifier: Apache-2.0

// Package toobig has the SCMP message Packet Too Big: which packets are answered with it, what it says, and how large a packet a
// way takes. The reference router never sends it.
package toobig

import (
	"errors"
	"fmt"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/drkey"
	"github.com/scionproto/scion/pkg/slayers"
	"github.com/scionproto/scion/pkg/slayers/path"
	"github.com/scionproto/scion/pkg/slayers/path/epic"
	"github.com/scionproto/scion/pkg/slayers/path/scion"
	"github.com/scionproto/scion/pkg/spao"
	"github.com/scionproto/scion/private/drkey/drkeyutil"
)

// Router is the router that answers.
type Router struct {
	IA   addr.IA
	Host addr.Host // the source of answers
	// Authenticate says that answers have an authenticator (features.experimental_scmp_authentication).
	Authenticate bool
}

// Packet is a SCION packet that the reference has processed and that has not left. Its buffer is that of the packet.
type Packet struct {
	raw    []byte
	header slayers.SCION
	path   *scion.Raw
}

// ErrUnanswered is about packets that no router answers by SCMP: SCMP errors, and those without a path that can be reversed.
var ErrUnanswered = errors.New("not to be answered by SCMP")

// Parse reads a packet. It changes nothing. The error wraps ErrUnanswered for packets that are not to be answered.
func Parse(raw []byte) (*Packet, error) {
	p := &Packet{raw: raw}
	if err := p.header.DecodeFromBytes(raw, gopacket.NilDecodeFeedback); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnanswered, err)
	}
	switch of := p.header.Path.(type) {
	case *scion.Raw:
		p.path = of
	case *epic.Path:
		p.path = of.ScionPath
	}
	if p.path == nil {
		return nil, fmt.Errorf("%w: path of type %s", ErrUnanswered, p.header.PathType)
	}
	if int(p.path.PathMeta.CurrHF) >= p.path.NumHops || !p.path.CurrINFMatchesCurrHF() {
		return nil, fmt.Errorf("%w: the path header contradicts itself", ErrUnanswered)
	}
	return p, p.refuseError()
}

// refuseError returns an error for an SCMP error message.
func (p *Packet) refuseError() error {
	var hopByHop slayers.HopByHopExtnSkipper
	var endToEnd slayers.EndToEndExtnSkipper
	next, payload := p.header.NextHdr, p.header.LayerPayload()
	if next == slayers.HopByHopClass {
		if err := hopByHop.DecodeFromBytes(payload, gopacket.NilDecodeFeedback); err != nil {
			return fmt.Errorf("%w: %w", ErrUnanswered, err)
		}
		next, payload = hopByHop.NextHdr, hopByHop.LayerPayload()
	}
	if next == slayers.End2EndClass {
		if err := endToEnd.DecodeFromBytes(payload, gopacket.NilDecodeFeedback); err != nil {
			return fmt.Errorf("%w: %w", ErrUnanswered, err)
		}
		next, payload = endToEnd.NextHdr, endToEnd.LayerPayload()
	}
	if next != slayers.L4SCMP {
		return nil
	}
	var message slayers.SCMP
	if err := message.DecodeFromBytes(payload, gopacket.NilDecodeFeedback); err != nil {
		return fmt.Errorf("%w: %w", ErrUnanswered, err)
	}
	if !message.TypeCode.InfoMsg() {
		return fmt.Errorf("%w: %s", ErrUnanswered, message.TypeCode)
	}
	return nil
}

// Ingress returns the interface by which the packet has come into the AS, 0 for one from inside. It is for packets that do not
// leave the AS here.
func (p *Packet) Ingress() (uint16, error) {
	at, peering, err := p.hop()
	if err != nil {
		return 0, err
	}
	if !peering && p.path.IsFirstHopAfterXover() {
		at.CurrINF, at.CurrHF = at.CurrINF-1, at.CurrHF-1
	}
	info, err := p.path.GetInfoField(int(at.CurrINF))
	if err != nil {
		return 0, err
	}
	hop, err := p.path.GetHopField(int(at.CurrHF))
	if err != nil {
		return 0, err
	}
	if info.ConsDir {
		return hop.ConsIngress, nil
	}
	return hop.ConsEgress, nil
}

// hop returns where the packet is on its path, and whether that is a hop over a peering link.
func (p *Packet) hop() (scion.MetaHdr, bool, error) {
	at := p.path.PathMeta
	info, err := p.path.GetInfoField(int(at.CurrINF))
	return at, peering(at, info), err
}

// peering tells whether a hop field is that of a peering link.
func peering(at scion.MetaHdr, info path.InfoField) bool {
	if !info.Peer || at.SegLen[0] == 0 || at.SegLen[1] == 0 || at.SegLen[2] != 0 {
		return false
	}
	return at.CurrHF == at.SegLen[0]-1 || at.CurrHF == at.SegLen[0]
}

// undoEgress takes back what the reference does last with a packet that leaves the AS: it has moved on to the hop field of the next
// AS.
func (p *Packet) undoEgress() error {
	at := p.path.PathMeta
	if at.CurrHF == 0 {
		return errors.New("a packet that leaves the AS is at its first hop")
	}
	at.CurrHF--
	at.CurrINF = 0
	for last := at.SegLen[0]; at.CurrHF >= last && at.CurrINF < 2; last += at.SegLen[at.CurrINF] {
		at.CurrINF++
	}
	info, err := p.path.GetInfoField(int(at.CurrINF))
	if err != nil {
		return err
	}
	hop, err := p.path.GetHopField(int(at.CurrHF))
	if err != nil {
		return err
	}
	if info.ConsDir && !peering(at, info) {
		info.UpdateSegID(hop.Mac)
		if err := p.path.SetInfoField(info, int(at.CurrINF)); err != nil {
			return err
		}
	}
	p.path.PathMeta = at
	return at.SerializeTo(p.path.Raw)
}

// Way says where a packet came from and where it was to go.
type Way struct {
	// FromExternal says that it came by a link to another AS, ToExternal that it was to leave by one.
	FromExternal, ToExternal bool
}

// Answer returns the message for a packet. MTU is the length of the longest SCION packet that the way out takes. The packet is
// changed, since the message quotes it as it was before it was made ready to leave.
func (r *Router) Answer(p *Packet, w Way, mtu int) ([]byte, error) {
	return r.Error(p, w, slayers.SCMPTypePacketTooBig, &slayers.SCMPPacketTooBig{MTU: uint16(min(mtu, 0xffff))})
}

// Error returns an SCMP error about a packet, with code 0. It is what the reference sends for its own errors.
func (r *Router) Error(p *Packet, w Way, typ slayers.SCMPType, body gopacket.SerializableLayer) ([]byte, error) {
	if w.ToExternal {
		if err := p.undoEgress(); err != nil {
			return nil, err
		}
	}
	back, err := p.back(w.FromExternal)
	if err != nil {
		return nil, err
	}
	h := slayers.SCION{
		FlowID: p.header.FlowID, TrafficClass: p.header.TrafficClass, NextHdr: slayers.L4SCMP,
		PathType: back.Type(), Path: back, DstIA: p.header.SrcIA, SrcIA: r.IA,
		DstAddrType: p.header.SrcAddrType, RawDstAddr: p.header.RawSrcAddr,
	}
	if err := h.SetSrcAddr(r.Host); err != nil {
		return nil, err
	}
	message := slayers.SCMP{TypeCode: slayers.CreateSCMPTypeCode(typ, 0)}
	message.SetNetworkLayerForChecksum(&h)
	around := slayers.CmnHdrLen + h.AddrHdrLen() + back.Len() + slayers.ScmpHeaderSize(typ)
	if r.Authenticate {
		around += authenticatorLen
	}
	quote := gopacket.Payload(p.raw[:min(len(p.raw), slayers.MaxSCMPPacketLen-around)])
	buf, options := gopacket.NewSerializeBuffer(), gopacket.SerializeOptions{ComputeChecksums: true, FixLengths: true}
	if err := gopacket.SerializeLayers(buf, options, &message, body, quote); err != nil {
		return nil, err
	}
	if r.Authenticate {
		h.NextHdr = slayers.End2EndClass
		auth, err := authenticator(&h, buf.Bytes(), time.Now())
		if err != nil {
			return nil, err
		}
		if err := auth.SerializeTo(buf, options); err != nil {
			return nil, err
		}
	}
	err = h.SerializeTo(buf, options)
	return buf.Bytes(), err
}

// back returns the path of an answer. External says that it leaves the AS here.
func (p *Packet) back(external bool) (*scion.Decoded, error) {
	decoded, err := p.path.ToDecoded()
	if err != nil {
		return nil, err
	}
	reversed, err := decoded.Reverse()
	if err != nil {
		return nil, err
	}
	back := reversed.(*scion.Decoded)
	peers := peering(back.PathMeta, back.InfoFields[back.PathMeta.CurrINF])
	if back.IsXover() && !peers { // the packet has changed segments here
		if err := back.IncPath(); err != nil {
			return nil, err
		}
	}
	if !external {
		return back, nil
	}
	if info := &back.InfoFields[back.PathMeta.CurrINF]; info.ConsDir && !peers {
		info.UpdateSegID(back.HopFields[back.PathMeta.CurrHF].Mac)
	}
	return back, back.IncPath()
}

// authenticatorLen is the length of the extension with an authenticator: a header with the option, and a CMAC.
const authenticatorLen = 32

// authenticator returns the extension that authenticates a message, as the reference makes it for its own errors: under the key of
// this AS for the host that gets the message.
func authenticator(h *slayers.SCION, message []byte, now time.Time) (*slayers.EndToEndExtn, error) {
	keys := &drkeyutil.FakeProvider{EpochDuration: drkeyutil.LoadEpochDuration(), AcceptanceWindow: drkeyutil.LoadAcceptanceWindow()}
	to, err := h.DstAddr()
	if err != nil {
		return nil, err
	}
	key, err := keys.GetASHostKey(now, h.DstIA, to)
	if err != nil {
		return nil, err
	}
	spi, err := slayers.MakePacketAuthSPIDRKey(uint16(drkey.SCMP), slayers.PacketAuthASHost, slayers.PacketAuthSenderSide)
	if err != nil {
		return nil, err
	}
	at, err := spao.RelativeTimestamp(key.Epoch, now)
	if err != nil {
		return nil, err
	}
	option, err := slayers.NewPacketAuthOption(slayers.PacketAuthOptionParams{
		SPI: spi, Algorithm: slayers.PacketAuthCMAC, TimestampSN: at, Auth: make([]byte, 16)})
	if err != nil {
		return nil, err
	}
	_, err = spao.ComputeAuthCMAC(spao.MACInput{Key: key.Key[:], Header: option, ScionLayer: h, PldType: slayers.L4SCMP, Pld: message},
		make([]byte, spao.MACBufferSize), option.Authenticator())
	if err != nil {
		return nil, err
	}
	e := &slayers.EndToEndExtn{Options: []*slayers.EndToEndOption{option.EndToEndOption}}
	e.NextHdr = slayers.L4SCMP
	return e, nil
}
