// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"time"

	"culvert/internal/scion/scionplane"
)

// The BFD control packet of RFC 5880, 4.1: offsets in bytes, bits of the second byte, states.
const (
	bfdVersionAt  = 0
	bfdFlagsAt    = 1
	bfdMultAt     = 2
	bfdLengthAt   = 3
	bfdMyDiscAt   = 4
	bfdYourDiscAt = 8
	bfdMinRxAt    = 16
	bfdLength     = 24

	bfdStateShift = 6
	bfdAuth       = 1 << 2
	bfdMultipoint = 1 << 0

	bfdStateAdminDown = 0
	bfdStateDown      = 1
)

const (
	// bfdMaxUnprovenMinRx bounds the Required Min RX Interval of a packet that lacks the session's discriminator, in
	// microseconds. Sessions that are down send at this interval (RFC 5880, 6.8.3).
	bfdMaxUnprovenMinRx = 1_000_000
	// bfdStale is how long a session that is down hears nothing but packets under another discriminator before it falls
	// silent, and how long after the last of them it stays silent. A far end sends at least one packet a second.
	bfdStale = 3 * time.Second
)

// bfdCause says why a BFD packet is kept from the session of its link.
type bfdCause uint8

const (
	bfdAccepted bfdCause = iota
	// bfdCauseMalformed is for packets that RFC 5880, 6.8.6 discards for any session, and for extension headers in front
	// of a packet where they are refused.
	bfdCauseMalformed
	// bfdCauseDiscriminator is for packets of another session or of none.
	bfdCauseDiscriminator
	// bfdCauseAdminDown is for AdminDown while the session is not up, which changes nothing.
	bfdCauseAdminDown
	bfdCauses
)

var bfdCauseNames = [bfdCauses]string{bfdCauseMalformed: "malformed", bfdCauseDiscriminator: "discriminator", bfdCauseAdminDown: "admin-down"}

// bfdGate stands between a link's socket and the link's BFD session. The reference's session compares no discriminators
// and does not come back from AdminDown, so the gate does what RFC 5880, 6.8.6 asks of the reception of packets.
type bfdGate struct {
	link   string
	remote netip.AddrPort
	// localDisc is the session's discriminator.
	localDisc uint32
	// up tells whether the session is up.
	up func() bool
	// refuseExtensions drops BFD packets behind extension headers, where the filter that checks the TTL does not find them.
	refuseExtensions bool

	// remoteDisc is the far end's discriminator in the last packet that the session got.
	remoteDisc atomic.Uint32
	// staleSince is when the first packet under another discriminator came after the last one for the session, 0 for
	// none. staleLast is when the last such packet came. Both are nanoseconds since the epoch.
	staleSince, staleLast atomic.Int64
	dropped               [bfdCauses]atomic.Uint64
}

// follow makes the gate go on where the former gate of its link has stopped, which sees no packets any more.
func (g *bfdGate) follow(former *bfdGate) {
	g.remoteDisc.Store(former.remoteDisc.Load())
	g.staleSince.Store(former.staleSince.Load())
	g.staleLast.Store(former.staleLast.Load())
	for cause := range g.dropped {
		g.dropped[cause].Store(former.dropped[cause].Load())
	}
}

// bfdAt returns the offset of the BFD packet in a SCION packet, and whether extension headers stand in front of it. It
// finds every BFD packet that the reference finds: the reference accepts fewer chains of extension headers.
func bfdAt(raw []byte) (at int, behindHeaders, ok bool) {
	const (
		nextHeader, headerLen, pathType = 4, 5, 8
		pathEmpty, pathOneHop           = 0, 2
		hopByHop, endToEnd, bfd         = 200, 201, 203
	)
	if len(raw) <= pathType || raw[pathType] != pathEmpty && raw[pathType] != pathOneHop {
		return 0, false, false
	}
	next, at := raw[nextHeader], 4*int(raw[headerLen])
	for next == hopByHop || next == endToEnd {
		if at+2 > len(raw) {
			return 0, false, false
		}
		next, at, behindHeaders = raw[at], at+4*(int(raw[at+1])+1), true
	}
	return at, behindHeaders, next == bfd && at <= len(raw)
}

// receive checks a SCION packet from the socket. To keep a BFD packet from the session, it writes a next header that the
// reference does not know, and the reference counts the packet as invalid.
func (g *bfdGate) receive(raw []byte) {
	at, behindHeaders, ok := bfdAt(raw)
	if !ok {
		return
	}
	cause := bfdCauseMalformed
	if !behindHeaders || !g.refuseExtensions {
		cause = g.check(raw[at:], time.Now())
	}
	if cause != bfdAccepted {
		g.dropped[cause].Add(1)
		raw[4] = 0
	}
}

// check decides on a BFD packet, and changes in an accepted one what the session would answer wrongly.
func (g *bfdGate) check(b []byte, now time.Time) bfdCause {
	if len(b) < bfdLength || b[bfdVersionAt]>>5 != 1 || int(b[bfdLengthAt]) < bfdLength || int(b[bfdLengthAt]) > len(b) ||
		b[bfdMultAt] == 0 || b[bfdFlagsAt]&(bfdMultipoint|bfdAuth) != 0 {
		return bfdCauseMalformed
	}
	mine, yours := binary.BigEndian.Uint32(b[bfdMyDiscAt:]), binary.BigEndian.Uint32(b[bfdYourDiscAt:])
	state, up := b[bfdFlagsAt]>>bfdStateShift, g.up()
	switch {
	case mine == 0:
		return bfdCauseMalformed
	case yours != 0 && yours != g.localDisc:
		g.staleLast.Store(now.UnixNano())
		g.staleSince.CompareAndSwap(0, now.UnixNano())
		return bfdCauseDiscriminator
	case yours == 0 && state != bfdStateDown && state != bfdStateAdminDown:
		return bfdCauseDiscriminator
	case yours == 0 && up && mine != g.remoteDisc.Load():
		// RFC 5880 leaves open what selects the session here. A far end that has restarted has another discriminator,
		// and so has a forger. The detection time ends the session with a far end that has restarted.
		return bfdCauseDiscriminator
	}
	g.staleSince.Store(0)
	if state == bfdStateAdminDown {
		if !up {
			return bfdCauseAdminDown
		}
		b[bfdFlagsAt] = b[bfdFlagsAt]&(1<<bfdStateShift-1) | bfdStateDown<<bfdStateShift
	}
	if yours == 0 && binary.BigEndian.Uint32(b[bfdMinRxAt:]) > bfdMaxUnprovenMinRx {
		// Otherwise one forged packet could keep the session from sending for more than an hour.
		binary.BigEndian.PutUint32(b[bfdMinRxAt:], bfdMaxUnprovenMinRx)
	}
	g.remoteDisc.Store(mine)
	return bfdAccepted
}

// send checks a SCION packet for the socket and tells whether it may be sent. The reference's session keeps the first
// discriminator that it hears of the far end. RFC 5880, 6.8.6 wants the last one, so send writes that.
func (g *bfdGate) send(raw []byte) bool {
	at, _, ok := bfdAt(raw)
	if !ok || len(raw) < at+bfdLength {
		return true
	}
	if b := raw[at:]; binary.BigEndian.Uint32(b[bfdYourDiscAt:]) != 0 {
		binary.BigEndian.PutUint32(b[bfdYourDiscAt:], g.remoteDisc.Load())
	}
	return !g.silent(time.Now())
}

// silent tells whether the session must not send for now. The far end may still use the discriminator of the session
// before a restart. The reference does so as long as it hears anything, and forgets it only when it hears nothing.
func (g *bfdGate) silent(now time.Time) bool {
	since := g.staleSince.Load()
	return since != 0 && !g.up() && now.UnixNano()-since > int64(bfdStale) && now.UnixNano()-g.staleLast.Load() < int64(bfdStale)
}

// fastPathSession returns the session as the fast path gets it. While the session is not up the fast path does not learn
// the discriminators, so that stale packets reach the gate, which silent depends on.
func (g *bfdGate) fastPathSession() scionplane.BFDSession {
	s := scionplane.BFDSession{Refused: uint32(g.refused())}
	if remote := g.remoteDisc.Load(); remote != 0 && g.up() {
		s.LocalDisc, s.RemoteDisc = g.localDisc, remote
	}
	return s
}

// refused counts the packets that a well-behaved far end does not send. Those in AdminDown are not among them: a far end
// sends them as long as it is in that state.
func (g *bfdGate) refused() uint64 {
	return g.dropped[bfdCauseMalformed].Load() + g.dropped[bfdCauseDiscriminator].Load()
}
