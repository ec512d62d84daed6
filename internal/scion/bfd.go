// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"time"

	"github.com/scionproto/scion/pkg/log"
	"github.com/scionproto/scion/router/control"

	"culvert/internal/host/pulse"
	"culvert/internal/scion/scionplane"
)

const (
	// bfdPoll is how often the state of the BFD sessions is read. The library does not notify of changes. A reading
	// costs about a microsecond for each interface.
	bfdPoll = 5 * time.Millisecond
	// bfdSettle is how long a session may take to come up before an adopted link is taken down:
	// the library sends its first packet after one second, and so may the far end.
	bfdSettle = 4 * time.Second
)

// bfdMirror copies the state of the slow path's BFD sessions to the fast path's links.
type bfdMirror struct {
	router *Router
	source control.ObservableDataplane
	turns  *pulse.Pulse
	// setUp writes the state of a link to the fast path.
	setUp func(link int, up bool) error
	// info writes to the log.
	info func(message string, fields ...any)
	// linkOf maps interface IDs to links.
	linkOf map[uint16]int
	// written is the state of each link in the fast path.
	written []linkState
	// failed marks the links whose last change could not be written.
	failed []bool
	// settled is when a link that was never seen up counts as down.
	settled time.Time
	// logged marks the links whose first state is in the log.
	logged []bool
	// logDownAt is when the log names the links that have never been up, zero once it has.
	logDownAt time.Time
	// former has the states of links in the log by their addresses, from an earlier mirror.
	former map[linkKey]linkState
	// gates are those of the links that have one. setSession writes a session to the fast path, and sessions holds what
	// was written.
	gates      map[int]*bfdGate
	setSession func(link int, s scionplane.BFDSession) error
	sessions   map[int]scionplane.BFDSession
}

type linkState uint8

const (
	linkUnknown linkState = iota
	linkUp
	linkDown
)

// newBFDMirror makes a mirror. Adopted says that the fast path carries traffic since an earlier process: its links keep
// their state until their sessions had time to come up.
func newBFDMirror(r *Router, source control.ObservableDataplane, adopted bool,
	setUp func(link int, up bool) error) *bfdMirror {

	m := &bfdMirror{
		router: r,
		source: source,
		setUp:  setUp,
		info:   log.Info,
		linkOf: map[uint16]int{},

		written: make([]linkState, len(r.Datapath.Links)),
		failed:  make([]bool, len(r.Datapath.Links)),
		logged:  make([]bool, len(r.Datapath.Links)),

		logDownAt: time.Now().Add(firstAnswers),
	}
	for _, intf := range r.Datapath.Interfaces {
		m.linkOf[intf.ID] = intf.Link
	}
	if adopted {
		m.settled = time.Now().Add(bfdSettle)
	}
	return m
}

// follow keeps states that former, which may be nil, has written to the log from being written there again.
func (m *bfdMirror) follow(former *bfdMirror) {
	if former == nil {
		return
	}
	m.former = make(map[linkKey]linkState)
	for i, l := range former.router.Datapath.Links {
		if former.logged[i] {
			m.former[linkKey{l.Local, l.Remote}] = former.written[i]
		}
	}
}

// run mirrors until ctx ends. The links keep the state that they have then.
func (m *bfdMirror) run(ctx context.Context) {
	ticker := time.NewTicker(bfdPoll)
	defer ticker.Stop()
	for {
		m.turns.Beat()
		m.sync()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// sync writes the state of every link that has changed. A link without BFD is up.
func (m *bfdMirror) sync() {
	m.syncSessions()
	for link, watched := range m.router.BFD {
		if !watched {
			m.set(link, linkUp)
		}
	}
	external, _ := m.source.ListExternalInterfaces()
	for _, intf := range external {
		m.observe(m.linkOf[intf.IfID], intf.State)
	}
	siblings, _ := m.source.ListSiblingInterfaces()
	for _, intf := range siblings {
		m.observe(m.linkOf[intf.IfID], intf.State)
	}
	if !m.logDownAt.IsZero() && time.Now().After(m.logDownAt) {
		m.logDownAt = time.Time{}
		for link, state := range m.written {
			if state == linkDown && !m.logged[link] {
				m.logState(link)
			}
		}
	}
}

// mirrorSessions has sync write the sessions behind gates too, so that the fast path can tell their BFD packets from
// others.
func (m *bfdMirror) mirrorSessions(gates map[int]*bfdGate, set func(link int, s scionplane.BFDSession) error) {
	m.gates, m.setSession, m.sessions = gates, set, map[int]scionplane.BFDSession{}
}

// syncSessions writes every session that has changed. A failure is tried again at the next poll; until then the gate
// drops the packets that the fast path passes up wrongly.
func (m *bfdMirror) syncSessions() {
	for link, gate := range m.gates {
		now := gate.fastPathSession()
		if last, ok := m.sessions[link]; ok && last == now {
			continue
		}
		if err := m.setSession(link, now); err != nil {
			log.Debug("Fast path did not take the BFD session of a link", "link", gate.link, "err", err)
			continue
		}
		m.sessions[link] = now
	}
}

// logState writes the state of a link that BFD watches to the log.
func (m *bfdMirror) logState(link int) {
	if !m.router.BFD[link] {
		return
	}
	l := m.router.Datapath.Links[link]
	first := !m.logged[link]
	m.logged[link] = true
	if first && m.former[linkKey{l.Local, l.Remote}] == m.written[link] {
		return
	}
	if m.written[link] == linkUp {
		m.info("Link up by BFD", "link", l.Name, "remote", l.Remote)
	} else {
		m.info("Link down by BFD", "link", l.Name, "remote", l.Remote)
	}
}

func (m *bfdMirror) observe(link int, state control.InterfaceState) {
	switch {
	case !m.router.BFD[link]:
	case state == control.InterfaceUp:
		m.set(link, linkUp)
	case m.written[link] == linkUnknown && time.Now().Before(m.settled):
	default:
		m.set(link, linkDown)
	}
}

// set writes the state of a link if it has changed. A failure is tried again at the next poll and logged once.
func (m *bfdMirror) set(link int, state linkState) {
	if m.written[link] == state {
		return
	}
	name := m.router.Datapath.Links[link].Name
	if err := m.setUp(link, state == linkUp); err != nil {
		if !m.failed[link] {
			log.Error("Fast path did not take the state of a link", "link", name, "err", err)
		}
		m.failed[link] = true
		return
	}
	// Every session begins down, so the log names such a link only once it had time to come up.
	begins := m.written[link] == linkUnknown && state == linkDown && !m.logDownAt.IsZero()
	m.written[link], m.failed[link] = state, false
	if !begins {
		m.logState(link)
	}
}
