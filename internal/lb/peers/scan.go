// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"slices"
	"time"

	"culvert/internal/lb/lbplane"
)

const (
	// scanPeriod is the shortest time between two looks at the whole flow table, unless rings change. Each takes about a second for ten
	// million flows. So that looking takes no more than a fiftieth of a CPU, a look waits scanShare times the time of the one before.
	scanPeriod = 2 * time.Second
	scanShare  = 50
	// againAfter is the time from a change of rings to a second look: packets that were on their way have found the old rings.
	againAfter = time.Second
	// retellPeriod is the time after which a flow is told again. That repairs lost datagrams, and keeps the flow from timing out there.
	retellPeriod = 30 * time.Second
	// resendPeriod is the shortest time between two times that all flows are told because a peer has started.
	resendPeriod = 5 * time.Second
)

// scans says when the flow table is looked at.
type scans struct {
	changed bool // rings have changed since
	due     time.Time
	resend  bool      // the next scan begins to tell all flows, those of peers too
	resent  time.Time // when that was begun last: what was told before is told again
	round   uint32
}

// told is what the peers know about a flow.
type told struct {
	lbplane.Held
	at    time.Time
	round uint32 // the last scan that has found the flow
}

// held is a flow that a peer has told.
type held struct {
	lbplane.Held
	at time.Time // when the peers were told last, by whichever of them
}

// scanWhenDue looks for flows to tell if rings have changed, or if it is time.
func (s *Service) scanWhenDue(now time.Time) error {
	if !s.scans.changed && now.Before(s.scans.due) {
		return nil
	}
	soon := s.scans.changed
	if soon {
		if err := s.x.ReadRings(); err != nil {
			return err
		}
		n, err := newNames(s.state, s.x.Plane())
		if err != nil {
			return err
		}
		s.names, s.scans.changed = n, false
	}
	s.scan(now)
	wait := max(scanPeriod, scanShare*time.Since(now))
	if soon {
		wait = againAfter
	}
	s.scans.due = time.Now().Add(wait)
	return nil
}

// scan fills the queue with the flows that are to be told: new ones first, and then those that are told again, by the time when they
// were told. What of an earlier queue is left is dropped: the flows are found again.
func (s *Service) scan(now time.Time) {
	s.sweep()
	if s.scans.resend && now.Sub(s.scans.resent) >= resendPeriod {
		s.scans.resend, s.scans.resent = false, now
	}
	s.scans.round++
	type earlier struct {
		item
		at time.Time
	}
	var fresh []item
	var again []earlier
	limit := s.limit()
	s.counts.deviating, s.counts.untold = 0, 0
	s.x.Deviating(func(k lbplane.FlowKey, h lbplane.Held) {
		if len(s.held) > 0 {
			if was, ok := s.held[k]; ok && was.Held == h {
				if was.at.Before(s.scans.resent) {
					again = append(again, earlier{item{k, h}, was.at})
				}
				return
			}
		}
		s.counts.deviating++
		t, ok := s.told[k]
		switch {
		case !ok && (len(s.told)+len(fresh) >= limit):
			s.counts.untold++ // it is found again once others have ended
		case !ok || t.Backend != h.Backend || t.Time.State() != h.Time.State():
			fresh = append(fresh, item{k, h})
		case t.at.Before(s.scans.resent) || now.Sub(t.at) >= retellPeriod:
			again = append(again, earlier{item{k, h}, t.at})
		}
		if ok {
			t.round = s.scans.round
			s.told[k] = t
		}
	})
	fresh = append(fresh, s.forget()...)
	slices.SortStableFunc(again, func(a, b earlier) int { return a.at.Compare(b.at) })
	for _, e := range again {
		fresh = append(fresh, e.item)
	}
	s.queue = fresh
}

// forget forgets the flows that were told and are not found any more. It returns those that have the backend of the ring again, but
// another one than was told.
func (s *Service) forget() (moved []item) {
	for k, t := range s.told {
		if t.round == s.scans.round {
			continue
		}
		delete(s.told, k)
		if h, ok := s.x.Find(k); ok && h.Backend != t.Backend && !s.x.Expired(h.Time) {
			moved = append(moved, item{k, h})
		}
	}
	return moved
}

// sweep forgets the flows of peers that have timed out, or that have had packets here: they are this machine's own.
func (s *Service) sweep() {
	for k, was := range s.held {
		if h, ok := s.x.Find(k); !ok || h != was.Held || s.x.Expired(h.Time) {
			delete(s.held, k)
		}
	}
}
