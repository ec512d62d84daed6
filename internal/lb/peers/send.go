// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
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
		if h, ok := s.held[i.key]; ok && h.Held == i.held {
			h.at = now
			s.held[i.key] = h
			continue
		}
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
	raw, err := s.sockets.udp.SyscallConn()
	if err == nil {
		var refused error
		err = raw.Write(func(fd uintptr) bool {
			refused = unix.Sendto(int(fd), b, unix.MSG_DONTWAIT, sockaddr(to))
			return true
		})
		err = errors.Join(err, refused)
	}
	if err != nil {
		s.counts.sendErrors++
	}
}

func sockaddr(at netip.AddrPort) unix.Sockaddr {
	if at.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
}
