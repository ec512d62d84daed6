// SPDX-License-Identifier: Apache-2.0

package scionview

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scionproto/scion/pkg/addr"
)

// Lengths of the parts of a SCION header, in bytes (SCION header specification; bpf/scion/path.h).
const (
	hostOffset = 28
	metaLength = 4
	infoLength = 8
	hopLength  = 12
	mostHops   = 64
)

// Path types.
const (
	pathEmpty = iota
	pathSCION
	pathOneHop
	pathEPIC
)

// Types of host addresses.
const (
	hostIPv4    = 0
	hostIPv6    = 3
	hostService = 4
)

// Next headers.
const (
	protoTCP  = 6
	protoUDP  = 17
	protoHBH  = 200
	protoE2E  = 201
	protoSCMP = 202
	protoBFD  = 203
)

// known are the next headers that the reference router accepts.
var known = []byte{protoTCP, protoUDP, protoHBH, protoE2E, protoSCMP, protoBFD, 253, 254}

// header is a SCION header with a path of type SCION: where on its path the packet is.
type header struct {
	raw      []byte // header and what was captured of the payload
	length   int    // of header and payload
	head     int    // length of the header
	meta     int    // offset of the path meta header
	pathType byte
	protocol byte // behind the extension headers
	payload  int  // offset of what is behind the extension headers
	src, dst addr.IA
	srcType  byte
	dstType  byte

	info, hop int // the current ones
	segments  [3]int
	peering   bool
}

// Errors of decoding, as the programs tell them apart.
var (
	errMalformed = errors.New("the SCION header does not decode")
	errProtocol  = errors.New("the next header is none of SCION's")
	errPath      = errors.New("the path header contradicts itself")
	errPort      = errors.New("the extension headers are cut off")
)

// decode reads the header up to the path (scion_decode).
func decode(raw []byte, length int) (h *header, err error) {
	h = &header{raw: raw, length: length}
	if length < hostOffset || len(raw) < hostOffset {
		return h, errMalformed
	}
	h.protocol, h.head, h.pathType = raw[4], int(raw[5])*4, raw[8]
	h.dstType, h.srcType = raw[9]>>4, raw[9]&0xf
	h.dst, h.src = addr.IA(binary.BigEndian.Uint64(raw[12:])), addr.IA(binary.BigEndian.Uint64(raw[20:]))
	if !slices.Contains(known, h.protocol) {
		return h, errProtocol
	}
	h.meta = hostOffset + 4 + 4*int(h.dstType&3) + 4 + 4*int(h.srcType&3)
	if h.head < h.meta || length < h.head {
		return h, errMalformed
	}
	h.payload = h.head
	if h.pathType != pathSCION {
		return h, nil
	}
	for _, class := range []byte{protoHBH, protoE2E} {
		if h.protocol != class {
			continue
		}
		if h.payload+2 > length {
			return h, errMalformed
		}
		if h.payload+2 > len(raw) {
			return h, errPort
		}
		h.protocol, h.payload = raw[h.payload], h.payload+(int(raw[h.payload+1])+1)*4
		if h.payload > length || h.protocol == protoHBH || class == protoE2E && h.protocol == protoE2E {
			return h, errMalformed
		}
	}
	return h, h.path()
}

// path reads the path meta header and checks the current fields (scion_path, path_pos_fill).
func (h *header) path() error {
	if h.meta+metaLength > h.head || h.meta+metaLength > len(h.raw) {
		return errMalformed
	}
	word := binary.BigEndian.Uint32(h.raw[h.meta:])
	h.info, h.hop = int(word>>30), int(word>>24&0x3f)
	h.segments = [3]int{int(word >> 12 & 0x3f), int(word >> 6 & 0x3f), int(word & 0x3f)}
	s := h.segments
	length := metaLength + infoLength*h.infos() + hopLength*h.hops()
	if s[0] == 0 && s[1]+s[2] > 0 || s[1] == 0 && s[2] > 0 || h.hops() > mostHops || h.meta+length > h.head || h.meta+length > len(h.raw) {
		return errMalformed
	}
	switch {
	case h.hop >= h.hops() || h.info >= h.infos(), h.info != h.infoOf(h.hop):
		return errPath
	case !h.flag(infoPeer):
		if slices.Contains(s[:], 1) {
			return errPath
		}
	case s[1] == 0 || s[2] != 0:
		return errPath
	default:
		h.peering = h.hop+1 == s[0] || h.hop == s[0]
	}
	return nil
}

func (h *header) infos() (n int) {
	for _, s := range h.segments {
		if s > 0 {
			n++
		}
	}
	return n
}

func (h *header) hops() int { return h.segments[0] + h.segments[1] + h.segments[2] }

// infoOf returns the number of the info field of a hop field.
func (h *header) infoOf(hop int) (n int) {
	if hop >= h.segments[0] {
		n++
	}
	if hop >= h.segments[0]+h.segments[1] {
		n++
	}
	return n
}

// Flags of info fields and hop fields.
const (
	infoConsDir = 1
	infoPeer    = 2

	hopEgressAlert  = 1
	hopIngressAlert = 2
)

func (h *header) infoField(n int) []byte { return h.raw[h.meta+metaLength+infoLength*n:][:infoLength] }

func (h *header) hopField(n int) []byte {
	return h.raw[h.meta+metaLength+infoLength*h.infos()+hopLength*n:][:hopLength]
}

// flag tells whether the current info field has a flag.
func (h *header) flag(f byte) bool { return h.infoField(h.info)[0]&f != 0 }

// interfaces returns the interfaces by which a packet enters and leaves the AS of a hop field, in the direction in which it goes.
func (h *header) interfaces(hop int) (in, out uint16) {
	f := h.hopField(hop)
	in, out = binary.BigEndian.Uint16(f[2:]), binary.BigEndian.Uint16(f[4:])
	if h.infoField(h.infoOf(hop))[0]&infoConsDir == 0 {
		in, out = out, in
	}
	return in, out
}

// alerts tells whether the ingress and the egress interface of the current hop field are asked to answer.
func (h *header) alerts() (in, out bool) {
	f := h.hopField(h.hop)[0]
	in, out = f&hopIngressAlert != 0, f&hopEgressAlert != 0
	if !h.flag(infoConsDir) {
		in, out = out, in
	}
	return in, out
}

func (h *header) last() bool { return h.hop+1 == h.hops() }

// switches tells whether the next hop field is of the next segment, and switched whether the previous one is of the previous one.
func (h *header) switches() bool { return !h.last() && h.infoOf(h.hop) != h.infoOf(h.hop+1) }

func (h *header) switched() bool { return h.hop > 0 && h.infoOf(h.hop) != h.infoOf(h.hop-1) }

// expires returns when the current hop field does. A unit is 24 h / 256.
func (h *header) expires() time.Time {
	start := int64(binary.BigEndian.Uint32(h.infoField(h.info)[4:]))
	return time.Unix(start, 0).Add(time.Duration(1+int64(h.hopField(h.hop)[1])) * 337500 * time.Millisecond)
}

// macInput returns what the MAC of the current hop field covers, and the MAC. The SegID of the info field is one hop ahead for a
// packet that comes in from another AS against the direction of construction: it is taken back then.
func (h *header) macInput(external bool) (input [16]byte, mac [6]byte) {
	info, hop := h.infoField(h.info), h.hopField(h.hop)
	segID := binary.BigEndian.Uint16(info[2:])
	if external && !h.flag(infoConsDir) && !h.peering {
		segID ^= binary.BigEndian.Uint16(hop[6:])
	}
	binary.BigEndian.PutUint16(input[2:], segID)
	copy(input[4:8], info[4:8])
	input[9] = hop[1]
	copy(input[10:14], hop[2:6])
	return input, [6]byte(hop[6:])
}

// text describes the place on the path.
func (h *header) text() string {
	var lengths string
	for _, s := range h.segments[:h.infos()] {
		if lengths != "" {
			lengths += "+"
		}
		lengths += fmt.Sprint(s)
	}
	direction := "against the direction of construction"
	if h.flag(infoConsDir) {
		direction = "in the direction of construction"
	}
	if h.flag(infoPeer) {
		direction += ", peering"
	}
	return fmt.Sprintf("path type SCION, %s > %s, hop %d of %d (segments %s), %s", h.src, h.dst, h.hop+1, h.hops(), lengths, direction)
}
