// SPDX-License-Identifier: Apache-2.0

package routejudge

import (
	"encoding/binary"
	"net/netip"
)

// outcome is what a router did with one packet.
type outcome struct {
	forwards []output // the packet itself, or its fragments
	answers  []output // the router's own packets in answer to it
}

const (
	typeIPv4 = 0x0800
	typeARP  = 0x0806
	typeVLAN = 0x8100
	typeIPv6 = 0x86dd
)

// inner has the fields of a header by which the packet is found that it belongs to.
type inner struct {
	id       uint16
	src, dst netip.Addr
	proto    byte
	payload  []byte
}

// parse reads an IP header, whole or cut after the addresses.
func parse(v6 bool, b []byte) (h inner, ok bool) {
	switch {
	case !v6 && len(b) >= 20:
		h.id, h.proto = binary.BigEndian.Uint16(b[4:]), b[9]
		h.src, h.dst = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
		h.payload = b[min(len(b), 4*int(b[0]&15)):]
	case v6 && len(b) >= 40:
		h.id, h.proto = binary.BigEndian.Uint16(b[2:]), b[6]
		h.src, h.dst = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
		h.payload = b[40:]
	default:
		return h, false
	}
	return h, true
}

// attribute assigns each frame that came out to a packet of the batch. Strays belong to none.
func attribute(batch []*packet, outputs []output) (of map[uint16]*outcome, strays []output) {
	of = make(map[uint16]*outcome)
	packets := make(map[uint16]*packet)
	for _, p := range batch {
		of[p.id], packets[p.id] = &outcome{}, p
	}
	for _, o := range outputs {
		kind, l3 := binary.BigEndian.Uint16(o.frame[12:]), 14
		if kind == typeVLAN && len(o.frame) >= 18 {
			kind, l3 = binary.BigEndian.Uint16(o.frame[16:]), 18
		}
		h, ok := parse(kind == typeIPv6, o.frame[l3:])
		if kind == typeARP {
			continue
		}
		if !ok || kind != typeIPv4 && kind != typeIPv6 {
			strays = append(strays, o)
			continue
		}
		// A source route changes the destination, so do not compare it.
		if p := packets[h.id]; p != nil && p.src == h.src {
			of[h.id].forwards = append(of[h.id].forwards, o)
			continue
		}
		about, known := answerTo(kind == typeIPv6, h)
		switch {
		case known && packets[about.id] != nil && packets[about.id].src == h.dst:
			of[about.id].answers = append(of[about.id].answers, o)
		case known && late(kind == typeIPv6, h.payload[0]):
		case kind == typeIPv6 && ownBusiness(h), kind == typeIPv4 && h.proto == 2: // MLD, neighbors; IGMP
		default:
			strays = append(strays, o)
		}
	}
	return of, strays
}

// answerTo returns the packet that a router's own packet answers.
func answerTo(v6 bool, h inner) (about inner, known bool) {
	b := h.payload
	switch {
	case len(b) < 8:
		return about, false
	case h.proto == 6: // a reset, to the port that has the number
		return inner{id: binary.BigEndian.Uint16(b[2:])}, true
	case !v6 && h.proto == 1 && b[0] == 0, v6 && h.proto == 58 && b[0] == 129:
		return inner{id: binary.BigEndian.Uint16(b[4:])}, true
	case !v6 && h.proto == 1:
		return parse(false, b[8:])
	case v6 && h.proto == 58 && b[0] < 128:
		return parse(true, b[8:])
	case v6 && h.proto == 58 && b[0] == 137 && len(b) > 40:
		return redirected(b[40:])
	}
	return about, false
}

// redirected returns the packet in the options of an IPv6 redirect.
func redirected(options []byte) (inner, bool) {
	for len(options) >= 8 && options[1] > 0 {
		size := min(len(options), 8*int(options[1]))
		if options[0] == 4 {
			return parse(true, options[8:size])
		}
		options = options[size:]
	}
	return inner{}, false
}

// late reports whether an answer may belong to an earlier batch, since the kernel gives a neighbor up only after seconds.
func late(v6 bool, icmpType byte) bool { return v6 && icmpType == 1 || !v6 && icmpType == 3 }

// ownBusiness reports whether a packet is one that a router sends to its neighbors on its own.
func ownBusiness(h inner) bool {
	b := h.payload
	if h.proto == 0 && len(b) > 8 { // router alert, before MLD
		b = b[8:]
	} else if h.proto != 58 {
		return false
	}
	return len(b) > 0 && (b[0] >= 130 && b[0] <= 136 || b[0] == 143)
}
