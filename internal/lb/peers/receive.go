// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"culvert/internal/lb/peerstate"
)

// receive takes datagrams until the service ends.
func (s *Service) receive() {
	c := newCodec(s.o.Key[:])
	b := make([]byte, 1<<16)
	for {
		n, from, err := s.sockets.udp.ReadFromUDPAddrPort(b)
		switch {
		case s.stopped() || errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, os.ErrDeadlineExceeded):
			continue
		case err != nil:
			s.fail("datagrams of the load balancer's peers are not received", err)
			time.Sleep(turn) // an error that stays must not take a CPU
			continue
		}
		s.take(c, b[:n], netip.AddrPortFrom(from.Addr().Unmap(), from.Port()))
	}
}

// take takes a datagram that came from an address.
func (s *Service) take(c *codec, b []byte, from netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	p := s.peers[from]
	if p == nil {
		s.counts.strangers++
		return
	}
	if !(p.known && claims(b, p.epoch)) && !p.mayClaim.take(1, now) {
		s.complain(p, peerstate.Flood, "more datagrams come with an epoch that is not the peer's than are looked at")
		return
	}
	h, body, err := c.open(b)
	switch {
	case errors.Is(err, errVersion):
		s.complain(p, peerstate.OtherVersion, fmt.Sprintf("it has version %d of the format, and not %d", b[4], version))
	case errors.Is(err, errMAC):
		s.complain(p, peerstate.WrongMAC, "it was made with another key, or changed")
	case err != nil:
		s.complain(p, peerstate.Cut, "it is cut, or no datagram of a peer")
	case h.sender != from:
		s.complain(p, peerstate.WrongMAC, fmt.Sprintf("it is from %s", h.sender))
	default:
		s.takeKind(p, &h, body, now)
	}
}

func (s *Service) takeKind(p *peer, h *header, body []byte, now time.Time) {
	switch h.kind {
	case kindFlows:
		s.takeFlows(p, h, body, now)
		return
	case kindAsk:
		if len(body) == nonceSize && p.mayAsk.take(1, now) {
			s.write(s.seal.seal(append(s.header(kindAnswer), body...)), p.at)
			s.scans.resend = true
		}
		return
	case kindAnswer:
		if p.asking && len(body) == nonceSize && [nonceSize]byte(body) == p.nonce && now.Sub(p.asked) < askWithin {
			p.known, p.epoch, p.window = true, h.epoch, startWindow(h.seq)
			p.asking = false
			s.hear(p, h, now)
			return
		}
		p.datagrams[peerstate.Replayed]++
		return
	}
	s.complain(p, peerstate.Cut, fmt.Sprintf("it is of kind %d", h.kind))
}

// takeFlows takes the flows of a datagram.
func (s *Service) takeFlows(p *peer, h *header, body []byte, now time.Time) {
	if !p.known || h.epoch != p.epoch {
		// An epoch that is not known may be an earlier one. The peer says which one it has, to a question that nobody has heard before.
		p.datagrams[peerstate.Unconfirmed]++
		if now.Sub(p.asked) >= askPeriod {
			_, _ = rand.Read(p.nonce[:]) // it never fails (crypto/rand)
			p.asking, p.asked = true, now
			s.write(s.seal.seal(append(s.header(kindAsk), p.nonce[:]...)), p.at)
		}
		return
	}
	fresh, lost := p.window.take(h.seq)
	p.datagrams[peerstate.Lost] += lost
	if !fresh {
		p.datagrams[peerstate.Replayed]++
		return
	}
	s.hear(p, h, now)
	// What is forged or heard again does not get here, and so takes nothing from what the peer may send.
	if !p.maySend.take(1, now) {
		s.complain(p, peerstate.Flood, "more datagrams come than the rate allows")
		return
	}
	flows, err := readFlows(body)
	if err != nil {
		s.complain(p, peerstate.Cut, "its flows make no sense")
		return
	}
	if !p.mayTell.take(float64(len(flows)), now) {
		s.complain(p, peerstate.Flood, "more flows come than the rate allows")
		return
	}
	p.datagrams[peerstate.Accepted]++
	s.install(flows)
}
