// SPDX-License-Identifier: Apache-2.0

package toobig

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/scionproto/scion/private/underlay/conn"
	scionrouter "github.com/scionproto/scion/router"
)

// answersPerSecond is how many packets of an ingress link are answered in a second, and in a burst a tenth of that. It is the rate
// at which the fast path passes packets up whose answer is another SCMP error.
const answersPerSecond = 10_000

// Guard stands at the ways out of a data plane of the reference. It answers packets that are too big for their way, and drops them.
// The reference leaves them to the kernel, which sends IP fragments.
type Guard struct {
	router Router
	// Fragment says that packets go out in fragments, as from the reference.
	fragment bool
	pool     scionrouter.PacketPool
	probers  map[netip.Addr]*Prober
	// external has the links to other ASes by their interface IDs.
	external map[uint16]scionrouter.Link
	// counts has the counters of links by their names.
	counts map[string]*Counts
	report *report

	mu     sync.Mutex
	limits map[scionrouter.Link]*limit
}

// Counts counts the packets that were too big for a link.
type Counts struct {
	// Answered were dropped with an answer, Dropped without one, and Fragmented were sent in fragments.
	Answered, Dropped, Fragmented atomic.Uint64
	// room is how long a packet may be, as asked for the last one.
	room atomic.Int64
}

// NewGuard makes the guard of a data plane that has no links yet. Links that former, which may be nil, has too go on counting.
func NewGuard(r Router, fragment bool, former *Guard) *Guard {
	g := &Guard{router: r, fragment: fragment, probers: map[netip.Addr]*Prober{}, external: map[uint16]scionrouter.Link{},
		counts: map[string]*Counts{}, limits: map[scionrouter.Link]*limit{}, report: newReport()}
	if former != nil {
		g.report = former.report
		for name, c := range former.counts {
			g.counts[name] = c
		}
	}
	return g
}

// Start gives the guard the packets of the data plane, before it runs.
func (g *Guard) Start(pool scionrouter.PacketPool) { g.pool = pool }

// Close closes the guard's sockets.
func (g *Guard) Close() {
	for _, p := range g.probers {
		p.Close()
	}
}

// exit is a way out of the router.
type exit struct {
	guard  *Guard
	prober *Prober
	counts *Counts
}

func (g *Guard) exit(name string, local netip.Addr) (exit, error) {
	local = local.Unmap()
	if g.probers[local] == nil {
		p, err := NewProber(local)
		if err != nil {
			return exit{}, err
		}
		g.probers[local] = p
	}
	if g.counts[name] == nil {
		g.counts[name] = &Counts{}
	}
	return exit{guard: g, prober: g.probers[local], counts: g.counts[name]}, nil
}

// link is a link to another AS.
type link struct {
	scionrouter.Link
	exit
	remote netip.AddrPort
}

// Link returns a link to another AS that is guarded. The reference sends by it. Link itself stays the one that packets come by.
func (g *Guard) Link(of scionrouter.Link, name string, local, remote netip.AddrPort) (scionrouter.Link, error) {
	e, err := g.exit(name, local.Addr())
	if err != nil {
		return nil, err
	}
	g.external[of.IfID()] = of
	return &link{Link: of, exit: e, remote: remote}, nil
}

// Send implements scionrouter.Link.
func (l *link) Send(p *scionrouter.Packet) bool {
	room, fits := l.prober.Fits(len(p.RawPacket), l.remote)
	if fits || p.Link == nil {
		return l.Link.Send(p)
	}
	from := origin{link: p.Link, address: p.RemoteAddr}
	if !l.refuse(p.RawPacket, room, true, func(*Packet) (origin, bool) { return from, true }) {
		return l.Link.Send(p)
	}
	l.Link.Metrics()[scionrouter.ClassOfSize(len(p.RawPacket))].DroppedPacketsInvalid.Inc()
	l.guard.pool.Put(p)
	return true
}

// socket is the socket of a link inside the AS.
type socket struct {
	scionrouter.BatchConn
	exit
	remote netip.AddrPort
}

// Socket returns the socket of the internal link, or of the link to a sibling, that is guarded. The reference tells links inside the
// AS apart by the pointers to them, so these are not wrapped as Link does.
func (g *Guard) Socket(of scionrouter.BatchConn, name string, local, remote netip.AddrPort) (scionrouter.BatchConn, error) {
	e, err := g.exit(name, local.Addr())
	if err != nil {
		return nil, err
	}
	return &socket{BatchConn: of, exit: e, remote: remote}, nil
}

// WriteBatch implements scionrouter.BatchConn. It stops before a packet that must not be sent: the reference drops the first packet
// that was not written, and goes on with the next one.
func (s *socket) WriteBatch(msgs conn.Messages, flags int) (int, error) {
	for i := range msgs {
		if s.refuses(msgs[i].Buffers[0], msgs[i].Addr) {
			msgs = msgs[:i]
			break
		}
	}
	if len(msgs) == 0 {
		return 0, nil
	}
	return s.BatchConn.WriteBatch(msgs, flags)
}

// refuses tells whether a packet must not be sent, and answers it then.
func (s *socket) refuses(raw []byte, address net.Addr) bool {
	to := s.remote
	if a, ok := address.(*net.UDPAddr); ok && a != nil {
		to = a.AddrPort()
	}
	if !to.IsValid() {
		return false
	}
	room, fits := s.prober.Fits(len(raw), to)
	return !fits && s.refuse(raw, room, false, s.guard.entrance)
}

// origin is where a packet came from: the link, and on the internal link the address, which is a *net.UDPAddr.
type origin struct {
	link    scionrouter.Link
	address unsafe.Pointer
}

// entrance returns where a packet came from that stays in the AS. What does not come from another AS is the router's own.
func (g *Guard) entrance(p *Packet) (origin, bool) {
	id, err := p.Ingress()
	return origin{link: g.external[id]}, err == nil && g.external[id] != nil
}

// refuse answers a packet that is longer than room, unless it is to be sent all the same.
func (e *exit) refuse(raw []byte, room int, external bool, entrance func(*Packet) (origin, bool)) bool {
	e.counts.room.Store(int64(room))
	p, err := Parse(raw)
	if e.guard.fragment || err != nil {
		e.counts.Fragmented.Add(1)
		return false
	}
	from, ok := entrance(p)
	if !ok {
		e.counts.Fragmented.Add(1)
		return false
	}
	if e.guard.answer(p, from, Way{FromExternal: from.link.Scope() == scionrouter.External, ToExternal: external}, room) == nil {
		e.counts.Answered.Add(1)
	} else {
		e.counts.Dropped.Add(1)
	}
	return true
}

// answer sends the answer to a packet back to where the packet came from.
func (g *Guard) answer(p *Packet, to origin, w Way, room int) error {
	if !g.limit(to.link).take(time.Now()) {
		return fmt.Errorf("over %d answers a second", answersPerSecond)
	}
	answer, err := g.router.Answer(p, w, room)
	if err != nil {
		return err
	}
	packet := g.pool.Get()
	packet.RawPacket = packet.RawPacket[:copy(packet.RawPacket, answer)]
	packet.RemoteAddr = to.address
	if !to.link.Send(packet) {
		g.pool.Put(packet)
		return fmt.Errorf("the queue is full")
	}
	return nil
}

// limit returns the limit of answers to packets from a link.
func (g *Guard) limit(of scionrouter.Link) *limit {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.limits[of]
	if l == nil {
		l = &limit{}
		g.limits[of] = l
	}
	return l
}

// limit is a token bucket. The zero value is full.
type limit struct {
	mu sync.Mutex
	// full is when the bucket is full again.
	full time.Time
}

// take takes a token if there is one.
func (l *limit) take(now time.Time) bool {
	const each, burst = time.Second / answersPerSecond, time.Second / 10
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full.Before(now) {
		l.full = now
	}
	if l.full.Sub(now) > burst-each {
		return false
	}
	l.full = l.full.Add(each)
	return true
}
