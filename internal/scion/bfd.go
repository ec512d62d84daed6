// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"time"

	"github.com/scionproto/scion/pkg/log"
	"github.com/scionproto/scion/router/control"

	"culvert/internal/scion/scionplane"
)

const (
	// bfdPoll is how often the state of the BFD sessions is read. The library has no way to be
	// told of changes; a reading costs about a microsecond and an interface.
	bfdPoll = 5 * time.Millisecond
	// bfdSettle is how long a session may take to come up before an adopted link is taken down:
	// the library sends its first packet after one second, and so may the far end.
	bfdSettle = 4 * time.Second
)

// bfdMirror copies the state of the slow path's BFD sessions to the fast path's links.
type bfdMirror struct {
	router *Router
	source control.ObservableDataplane
	setUp  func(link int, up bool) error
	// info writes to the log.
	info func(message string, fields ...any)
	// linkOf maps interface IDs to links.
	linkOf map[uint16]int
	// last holds what the fast path was told of each link.
	last []linkState
	// failed marks the links whose last change the fast path did not take.
	failed []bool
	// settled is when a link that was never seen up counts as down.
	settled time.Time
	// told marks the links whose first state the log knows.
	told []bool
	// late is when the log is told of links that have never been up.
	late time.Time
	// gates are those of the links that have one; session tells the fast path of their sessions, and sessions is what it
	// was told.
	gates    map[int]*bfdGate
	session  func(link int, s scionplane.BFDSession) error
	sessions map[int]scionplane.BFDSession
}

type linkState uint8

const (
	linkUnknown linkState = iota
	linkUp
	linkDown
)

// newBFDMirror makes a mirror. With adopted set the fast path already carries traffic for an
// earlier process, and its links keep their state until their sessions had time to come up.
func newBFDMirror(r *Router, source control.ObservableDataplane, adopted bool,
	setUp func(link int, up bool) error) *bfdMirror {

	m := &bfdMirror{
		router: r,
		source: source,
		setUp:  setUp,
		info:   log.Info,
		linkOf: map[uint16]int{},
		last:   make([]linkState, len(r.Datapath.Links)),
		failed: make([]bool, len(r.Datapath.Links)),
		told:   make([]bool, len(r.Datapath.Links)),
		late:   time.Now().Add(firstAnswers),
	}
	for _, intf := range r.Datapath.Interfaces {
		m.linkOf[intf.ID] = intf.Link
	}
	if adopted {
		m.settled = time.Now().Add(bfdSettle)
	}
	return m
}

// run mirrors until ctx ends and leaves the links as they are then.
func (m *bfdMirror) run(ctx context.Context) {
	ticker := time.NewTicker(bfdPoll)
	defer ticker.Stop()
	for {
		m.sync()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// sync tells the fast path of every link whose state has changed. A link without BFD is up.
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
	if !m.late.IsZero() && time.Now().After(m.late) {
		m.late = time.Time{}
		for link, state := range m.last {
			if state == linkDown && !m.told[link] {
				m.tell(link)
			}
		}
	}
}

// watch has the fast path told which BFD packets can be of a session.
func (m *bfdMirror) watch(gates map[int]*bfdGate, session func(link int, s scionplane.BFDSession) error) {
	m.gates, m.session, m.sessions = gates, session, map[int]scionplane.BFDSession{}
}

// syncSessions tells the fast path of every session that has changed. What fails is tried again at the next poll: until
// then the gate is alone.
func (m *bfdMirror) syncSessions() {
	for link, gate := range m.gates {
		now := gate.forFastPath()
		if last, told := m.sessions[link]; told && last == now {
			continue
		}
		if err := m.session(link, now); err != nil {
			log.Debug("Fast path did not take the BFD session of a link", "link", gate.link, "err", err)
			continue
		}
		m.sessions[link] = now
	}
}

// tell writes the state of a link that BFD watches to the log.
func (m *bfdMirror) tell(link int) {
	if !m.router.BFD[link] {
		return
	}
	m.told[link] = true
	l := m.router.Datapath.Links[link]
	if m.last[link] == linkUp {
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
	case m.last[link] == linkUnknown && time.Now().Before(m.settled):
	default:
		m.set(link, linkDown)
	}
}

// set passes a change on. A failure is tried again at the next poll and logged once.
func (m *bfdMirror) set(link int, state linkState) {
	if m.last[link] == state {
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
	// A session begins down. That is news only once it had time to come up.
	begins := m.last[link] == linkUnknown && state == linkDown && !m.late.IsZero()
	m.last[link], m.failed[link] = state, false
	if !begins {
		m.tell(link)
	}
}
