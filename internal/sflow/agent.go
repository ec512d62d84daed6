// SPDX-License-Identifier: Apache-2.0

package sflow

import (
	"net/netip"
	"time"
)

// unspecified stands for the address of an agent that cannot send.
var unspecified = netip.IPv4Unspecified()

// Ledger has what goes on when the configuration of an agent changes: sequence numbers, and the counts of each interface.
type Ledger struct {
	began     time.Time
	datagrams uint32
	sources   map[uint32]*source
	told      window
}

// source is what an interface has sent.
type source struct {
	flows, discards, counters uint32 // sequence numbers
	// pool and lost are sums over CPUs, and dropped are all dropped packets.
	pool, lost, dropped uint64
}

// NewLedger begins.
func NewLedger() *Ledger { return &Ledger{began: time.Now(), sources: make(map[uint32]*source)} }

func (l *Ledger) source(index uint32) *source {
	s := l.sources[index]
	if s == nil {
		s = new(source)
		l.sources[index] = s
	}
	return s
}

// Add adds to the counts of an interface: packets that could have been sampled, samples that were lost, packets that were dropped.
func (l *Ledger) Add(index uint32, pool, lost, dropped uint64) {
	s := l.source(index)
	s.pool += pool
	s.lost += lost
	s.dropped += dropped
}

// Flow returns the sample of a packet.
func (l *Ledger) Flow(p *Packet, rate int) []byte {
	s := l.source(p.Input)
	s.flows++
	return (&FlowSample{Sequence: s.flows, Rate: uint32(rate), Pool: uint32(s.pool), Drops: uint32(s.lost), Packet: p}).Encode()
}

// Discard returns the notification of a packet that was dropped.
func (l *Ledger) Discard(p *Packet) []byte {
	s := l.source(p.Input)
	s.discards++
	return (&Discard{Sequence: s.discards, Drops: uint32(s.dropped - uint64(s.discards)), Packet: p}).Encode()
}

// Counters returns a sample of an interface's counters.
func (l *Ledger) Counters(i *Interface) []byte {
	s := l.source(i.Index)
	s.counters++
	return EncodeCounters(s.counters, i)
}

// MayTell tells whether a dropped packet may be told of, if there may be so many in a second. It counts it then.
func (l *Ledger) MayTell(now time.Time, most int) bool { return l.told.take(now, most) }

// window has the times of the last events, so that there are never more than allowed in any second.
type window struct {
	times []time.Time
	next  int
}

func (w *window) take(now time.Time, most int) bool {
	if most == 0 {
		return false
	}
	if len(w.times) != most { // the limit is another one
		var last time.Time
		for _, t := range w.times {
			if t.After(last) {
				last = t
			}
		}
		w.times, w.next = make([]time.Time, most), 0
		for n := range w.times {
			w.times[n] = last
		}
	}
	if t := w.times[w.next]; !t.IsZero() && now.Sub(t) < time.Second {
		return false
	}
	w.times[w.next] = now
	w.next = (w.next + 1) % most
	return true
}

// delay is how long a sample waits for others to share its datagram. The standard allows a second.
const delay = 200 * time.Millisecond

// Sender puts samples into datagrams and sends them.
type Sender struct {
	Ledger *Ledger
	Socket *Socket
	Agent  Agent
	// Sent is called after each attempt.
	Sent func(err error)

	datagram Datagram
	first    time.Time // when the first sample was added
}

// Add adds a sample.
func (s *Sender) Add(sample []byte, now time.Time) {
	if !s.datagram.Fits(sample) {
		s.Flush()
	}
	if s.datagram.Empty() {
		s.first = now
	}
	s.datagram.Add(sample)
}

// Due returns when the datagram is to be sent, and false if it is empty.
func (s *Sender) Due() (time.Time, bool) { return s.first.Add(delay), !s.datagram.Empty() }

// Flush sends the datagram unless it is empty. One that cannot be sent is lost.
func (s *Sender) Flush() {
	if s.datagram.Empty() {
		return
	}
	now := time.Now()
	err := s.Socket.Ready(now)
	agent := s.Agent
	if !agent.Address.IsValid() {
		agent.Address = s.Socket.Local()
	}
	if err == nil {
		s.Ledger.datagrams++
	} else {
		agent.Address = unspecified
	}
	b := s.datagram.Encode(agent, s.Ledger.datagrams, now.Sub(s.Ledger.began))
	if err == nil {
		err = s.Socket.Send(b)
	}
	s.Sent(err)
}
