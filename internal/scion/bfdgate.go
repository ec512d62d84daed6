// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"time"

	"culvert/internal/scion/scionplane"
)

// A BFD control packet (RFC 5880, 4.1): offsets in bytes, bits of the second byte, states.
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

	bfdAdminDown = 0
	bfdDown      = 1
)

const (
	// bfdSlowest is the longest wait between its packets that a session takes from a packet without its
	// discriminator, microseconds: what sessions that are down send at (RFC 5880, 6.8.3).
	bfdSlowest = 1_000_000
	// bfdStale is for how long a session that is down is answered under a discriminator that it never gave, before it
	// falls silent. A far end that knows this session, or none, sends a packet a second.
	bfdStale = 3 * time.Second
)

// bfdCause says why a BFD packet does not get to its session.
type bfdCause uint8

const (
	bfdFine bfdCause = iota
	// bfdMalformed is for what RFC 5880, 6.8.6 discards whatever the session, and for headers that hide the packet.
	bfdMalformed
	// bfdDiscriminator is for packets of another session, or of none.
	bfdDiscriminator
	// bfdNoNews is for AdminDown while the session is not up: it stays as it is.
	bfdNoNews
	bfdCauses
)

var bfdCauseNames = [bfdCauses]string{bfdMalformed: "malformed", bfdDiscriminator: "discriminator", bfdNoNews: "admin-down"}

// bfdGate stands between a link's socket and the link's BFD session, which compares no discriminators and does not come
// back from AdminDown. It does for the session what RFC 5880, 6.8.6 asks of the reception of packets.
type bfdGate struct {
	link   string
	remote netip.AddrPort
	// own is the session's discriminator.
	own uint32
	// up tells whether the session is up.
	up func() bool
	// bare is set where BFD behind extension headers is refused.
	bare bool

	// far is the far end's discriminator in the last packet that the session got.
	far atomic.Uint32
	// stale is when packets under another discriminator began to come, with none for the session since; 0 for never.
	// latest is when the last one of them came. Nanoseconds since the epoch.
	stale, latest atomic.Int64
	dropped       [bfdCauses]atomic.Uint64
}

// bfdAt finds the BFD packet that the reference would find in a SCION packet, or says that there is none. It sees at
// least what the reference sees: that one takes fewer chains of extension headers.
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

// receive looks at a SCION packet from the socket. One that must not get to the session is made one that the reference
// counts as invalid, by a next header that it does not know.
func (g *bfdGate) receive(raw []byte) {
	at, behindHeaders, ok := bfdAt(raw)
	if !ok {
		return
	}
	cause := bfdMalformed
	if !behindHeaders || !g.bare {
		cause = g.take(raw[at:], time.Now())
	}
	if cause != bfdFine {
		g.dropped[cause].Add(1)
		raw[4] = 0
	}
}

// take decides on a BFD packet, and makes it one that the session answers rightly.
func (g *bfdGate) take(b []byte, now time.Time) bfdCause {
	if len(b) < bfdLength || b[bfdVersionAt]>>5 != 1 || int(b[bfdLengthAt]) < bfdLength || int(b[bfdLengthAt]) > len(b) ||
		b[bfdMultAt] == 0 || b[bfdFlagsAt]&(bfdMultipoint|bfdAuth) != 0 {
		return bfdMalformed
	}
	mine, yours := binary.BigEndian.Uint32(b[bfdMyDiscAt:]), binary.BigEndian.Uint32(b[bfdYourDiscAt:])
	state, up := b[bfdFlagsAt]>>bfdStateShift, g.up()
	switch {
	case mine == 0:
		return bfdMalformed
	case yours != 0 && yours != g.own:
		g.latest.Store(now.UnixNano())
		g.stale.CompareAndSwap(0, now.UnixNano())
		return bfdDiscriminator
	case yours == 0 && state != bfdDown && state != bfdAdminDown:
		return bfdDiscriminator
	case yours == 0 && up && mine != g.far.Load():
		// RFC 5880 leaves open what selects the session here. A far end that has begun anew has another discriminator,
		// but so has everybody else: it is found out by the detection time.
		return bfdDiscriminator
	}
	g.stale.Store(0)
	if state == bfdAdminDown {
		if !up {
			return bfdNoNews
		}
		b[bfdFlagsAt] = b[bfdFlagsAt]&(1<<bfdStateShift-1) | bfdDown<<bfdStateShift
	}
	if yours == 0 && binary.BigEndian.Uint32(b[bfdMinRxAt:]) > bfdSlowest {
		// Else one packet from nobody knows whom would keep the session from sending for as long as it says.
		binary.BigEndian.PutUint32(b[bfdMinRxAt:], bfdSlowest)
	}
	g.far.Store(mine)
	return bfdFine
}

// send looks at a SCION packet on its way to the socket, and tells whether it may go. The session goes on with the first
// discriminator that it has heard of; RFC 5880, 6.8.6 wants the last one.
func (g *bfdGate) send(raw []byte) bool {
	at, _, ok := bfdAt(raw)
	if !ok || len(raw) < at+bfdLength {
		return true
	}
	if b := raw[at:]; binary.BigEndian.Uint32(b[bfdYourDiscAt:]) != 0 {
		binary.BigEndian.PutUint32(b[bfdYourDiscAt:], g.far.Load())
	}
	return !g.silent(time.Now())
}

// silent tells whether the session must not be heard for a while. A far end that goes on with a discriminator from
// before this session began, as the reference does as long as it hears anything, forgets it when it hears nothing.
func (g *bfdGate) silent(now time.Time) bool {
	stale := g.stale.Load()
	return stale != 0 && !g.up() && now.UnixNano()-stale > int64(bfdStale) && now.UnixNano()-g.latest.Load() < int64(bfdStale)
}

// forFastPath is what the fast path may know of the session. While that is not up the gate has to see what comes, or
// silent would not know.
func (g *bfdGate) forFastPath() scionplane.BFDSession {
	s := scionplane.BFDSession{Refused: uint32(g.refused())}
	if far := g.far.Load(); far != 0 && g.up() {
		s.Own, s.Far = g.own, far
	}
	return s
}

// refused counts the packets that should not have come. AdminDown may come as long as its sender is down.
func (g *bfdGate) refused() uint64 {
	return g.dropped[bfdMalformed].Load() + g.dropped[bfdDiscriminator].Load()
}
