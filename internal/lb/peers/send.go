// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"net/netip"
	"time"
)

// send tells as many flows of the queue as the rate allows, or none, to say that this machine is there.
func (s *Service) send(now time.Time) {
	if len(s.queue) == 0 {
		if now.Sub(s.sent) >= helloPeriod {
			s.tell(nil, now)
		}
		return
	}
	if s.rate.take(0, now); s.rate.left < 1 {
		return
	}
	n := min(len(s.queue), int(s.rate.left))
	items := s.queue[:n]
	s.queue = s.queue[n:]
	s.rate.left -= float64(n)
	for _, i := range items {
		t := s.told[i.key]
		t.Held, t.at = i.held, now
		if t.round == 0 {
			t.round = s.scans.round
		}
		s.told[i.key] = t
	}
	s.tell(s.names.tell(items, s.x), now)
}

// tell sends flows to all peers, or one datagram without flows.
func (s *Service) tell(flows []toldFlow, now time.Time) {
	for first := true; first || len(flows) > 0; first = false {
		s.seq++
		b, n := appendFlows(s.header(kindFlows), flows)
		flows = flows[n:]
		s.counts.told += uint64(n)
		b = s.seal.seal(b)
		for _, p := range s.peers {
			s.write(b, p.at)
		}
	}
	s.sent = now
}

// header returns the header of a datagram of this machine.
func (s *Service) header(kind uint8) []byte {
	h := header{kind: kind, sender: s.o.Listen, epoch: s.epoch, seq: s.seq}
	if s.names != nil {
		h.sums = s.names.sums
	}
	return h.append(make([]byte, 0, maxDatagram))
}

// write sends a datagram. It does not wait: a socket without room loses it.
func (s *Service) write(b []byte, to netip.AddrPort) {
	_ = s.sockets.udp.SetWriteDeadline(time.Now().Add(time.Millisecond))
	if _, err := s.sockets.udp.WriteToUDPAddrPort(b, to); err != nil {
		s.counts.sendErrors++
	}
}
