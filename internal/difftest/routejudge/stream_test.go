// SPDX-License-Identifier: Apache-2.0

package routejudge

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"
)

// burst is how many packets of a stream are on the way at once. A veth's queues hold more.
const burst = 32

// stream sends traffic through a router while something else happens to it.
type stream struct {
	w    *twin
	g    *generator
	dsts []netip.Addr
	// sent counts packets. Those that have not come out exactly once are lost.
	sent, lost int
	// arrived is called for each packet that has come out. It may be nil.
	arrived func(p *packet, o output, sent, received time.Time)
}

func newStream(w *twin, seed uint64, dsts ...string) *stream {
	s := &stream{w: w, g: newGenerator(seed)}
	for _, d := range dsts {
		s.dsts = append(s.dsts, netip.MustParseAddr(d))
	}
	return s
}

// through sends packets while f runs, on a thread in the router's namespace, and for ten more bursts.
func (s *stream) through(f func() error) {
	t := s.w.t
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- inNamespace(s.w, f) }()
	end := time.Now().Add(patience)
	for more := 10; more > 0; {
		select {
		case err := <-done:
			check(t, err)
			done = nil
		default:
		}
		if done == nil {
			more--
		}
		s.burst()
		if time.Now().After(end) {
			t.Fatal("what should happen to the router under load does not end")
		}
	}
}

func (s *stream) burst() {
	t := s.w.t
	batch := make([]*packet, burst)
	sent := make(map[uint16]time.Time)
	for i := range batch {
		p := s.g.start("stream", 0)
		s.packet(p, s.dsts[i%len(s.dsts)])
		batch[i] = p
		sent[p.id] = time.Now()
		s.w.wire.put(p.port, p.frame)
	}
	of, strays := attribute(batch, s.w.settled())
	received := time.Now()
	for _, o := range strays {
		t.Errorf("out of port %d came what nothing was sent for: %x", o.port, o.frame)
	}
	for _, p := range batch {
		s.sent++
		o := of[p.id]
		if len(o.forwards) != 1 || len(o.answers) != 0 {
			if s.lost++; s.lost < 4 {
				t.Error(complaint{what: fmt.Sprintf("came out %d times", len(o.forwards)), packet: p, kernel: o})
			}
			continue
		}
		if s.arrived != nil {
			s.arrived(p, o.forwards[0], sent[p.id], received)
		}
	}
}

func (s *stream) packet(p *packet, dst netip.Addr) {
	if dst.Is4() {
		h := s.g.head4(p)
		h.src, h.dst, h.ttl = host4(0, firstHost), dst, 64
		p.frame = h.build()
		return
	}
	h := s.g.head6(p)
	h.src, h.dst, h.hops = host6(0, firstHost), dst, 64
	p.frame = h.build()
}

// report fails the test if a packet was lost.
func (s *stream) report() {
	s.w.t.Helper()
	s.w.t.Logf("%d packets sent, %d lost", s.sent, s.lost)
	if s.lost > 0 {
		s.w.t.Errorf("%d of %d packets are lost", s.lost, s.sent)
	}
}

// killablePlane is a data plane whose control plane can be killed. From then on the mirror is not marked as current any more.
type killablePlane struct {
	plane
	killed atomic.Bool
}

func (m *killablePlane) SetCurrent(until4, until6 time.Duration) error {
	if m.killed.Load() {
		return nil
	}
	return m.plane.SetCurrent(until4, until6)
}

// waitFor waits until a condition is true.
func waitFor(t *testing.T, what string, is func() bool) error {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("%s: not after %v", what, patience)
		}
	}
	return nil
}
