// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"sync"
	"sync/atomic"

	"github.com/gopacket/gopacket/layers"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/scionproto/scion/router/bfd"
)

// Session is a BFD session of the reference that can move to another data plane. Its state, its timers and its discriminators
// stay then; it sends and counts where the other data plane's session for the link would have.
type Session struct {
	*bfd.Session
	sender  sender
	metrics metrics
	// given is what the data plane that has made the session gave it, until the session moves.
	given Attachment
}

// Attachment is what a data plane gives to a session.
type Attachment struct {
	Sender  bfd.Sender
	Metrics bfd.Metrics
}

// NewSession makes a session that has not run yet movable.
func NewSession(s *bfd.Session) *Session {
	m := &Session{Session: s}
	given := Attachment{s.Sender, s.Metrics}
	m.Attach(given)
	m.given = given
	s.Sender, s.Metrics = &m.sender, m.metrics.of()
	return m
}

// Attachment returns what the data plane that has made the session gave it.
func (s *Session) Attachment() Attachment { return s.given }

// Attach moves the session. The data plane has to be running, and the former one sends nothing for the session any more.
func (s *Session) Attach(a Attachment) {
	s.given = Attachment{} // it keeps that data plane in memory
	s.metrics.to(a.Metrics)
	s.sender.set(a.Sender)
	if a.Metrics.Up != nil && s.Session.IsUp() {
		a.Metrics.Up.Set(1)
	}
}

// Detach ends what the session sends and counts. Sending is over when Detach returns.
func (s *Session) Detach() {
	s.given = Attachment{}
	s.sender.set(nil)
	s.metrics.to(bfd.Metrics{})
}

// sender is a bfd.Sender that can be exchanged.
type sender struct {
	mu sync.Mutex
	to bfd.Sender // nil discards
}

func (s *sender) set(to bfd.Sender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = to
}

// Send implements bfd.Sender.
func (s *sender) Send(b *layers.BFD) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to == nil {
		return nil
	}
	return s.to.Send(b)
}

// metrics are counters and gauges that can be exchanged.
type metrics struct {
	sent, received, changes counter
	up                      gauge
}

func (m *metrics) of() bfd.Metrics {
	return bfd.Metrics{PacketsSent: &m.sent, PacketsReceived: &m.received, StateChanges: &m.changes, Up: &m.up}
}

func (m *metrics) to(b bfd.Metrics) {
	m.sent.to.Store(&b.PacketsSent)
	m.received.to.Store(&b.PacketsReceived)
	m.changes.to.Store(&b.StateChanges)
	m.up.to.Store(&b.Up)
}

// counter passes on the one method that sessions use.
type counter struct {
	prometheus.Counter
	to atomic.Pointer[prometheus.Counter]
}

// Add implements prometheus.Counter.
func (c *counter) Add(n float64) {
	if to := *c.to.Load(); to != nil {
		to.Add(n)
	}
}

// gauge passes on the one method that sessions use.
type gauge struct {
	prometheus.Gauge
	to atomic.Pointer[prometheus.Gauge]
}

// Set implements prometheus.Gauge.
func (g *gauge) Set(n float64) {
	if to := *g.to.Load(); to != nil {
		to.Set(n)
	}
}
