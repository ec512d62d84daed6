// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"fmt"
	"net/netip"
	"slices"
)

/*
Update replaces the options of a Speaker that runs. It returns an error, and changes nothing, if the options are wrong or the
speaker is closed.

	neighbors that are new      get a session, and the prefixes of the last Set
	neighbors that are gone     lose the prefixes at once, with a graceful restart too: no other session follows
	neighbors with other next   keep their sessions, and get the prefixes again. So does everybody if the communities, the MED or
	hops                        the families that other sessions carry are others
	neighbors with other        get a new session once the old one has ended. So does everybody if the AS number, the router
	parameters                  ID, the hold time or the restart time are others, since only the beginning of a session tells
	                            these. With a graceful restart the neighbors keep the prefixes meanwhile

It does not wait for sessions that end. What else is established stays so.
*/
func (s *Speaker) Update(o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("change the BGP sessions: %w", errClosed)
	}
	all := make([]*session, len(o.Neighbors))
	var fresh, kept []*session
	for n, neighbor := range o.Neighbors {
		if x := s.session(neighbor.Address); x != nil && x.suits(&o, neighbor) {
			all[n] = x
			kept = append(kept, x)
			continue
		}
		all[n] = newSession(&o, neighbor)
		fresh = append(fresh, all[n])
	}
	// gobgp's servers share settings, so start all of them before the first one connects. Later ones set the same again.
	for _, x := range fresh {
		if err := x.start(s.ctx); err != nil {
			for _, x := range fresh {
				s.work.Go(x.end)
			}
			return fmt.Errorf("speak BGP with %s: %w", x.Address, err)
		}
	}
	for _, x := range s.sessions {
		switch {
		case slices.Contains(kept, x):
		case slices.ContainsFunc(fresh, func(f *session) bool { return f.Address == x.Address }):
			x.log.Info("BGP session ends, and begins again with other parameters")
			s.work.Go(x.end)
		default:
			x.log.Info("BGP session ends: the neighbor is taken out")
			s.work.Go(x.retire)
		}
	}
	s.sessions = all
	for n, x := range all {
		if slices.Contains(kept, x) {
			x.adopt(&o, o.Neighbors[n])
			continue
		}
		x.previous, s.over[x.Address] = s.over[x.Address], x.over
		x.prefixes, x.given = s.prefixes, s.given
		s.work.Go(func() {
			if err := x.connect(s.ctx); err != nil {
				x.failed(err.Error())
			}
		})
	}
	return nil
}

// session returns the session with a neighbor, nil if there is none. The caller holds the lock.
func (s *Speaker) session(neighbor netip.Addr) *session {
	for _, x := range s.sessions {
		if x.Address == neighbor {
			return x
		}
	}
	return nil
}

// suits returns whether the session can go on with other options.
func (x *session) suits(o *Options, n Neighbor) bool {
	now := x.Neighbor
	now.NextHop4, now.NextHop6 = n.NextHop4, n.NextHop6
	return now == n && x.asn == o.ASN && x.routerID == o.RouterID && x.holdTime == o.HoldTime && x.restartTime == o.GracefulRestart
}

// adopt goes on with other options, which suit the session.
func (x *session) adopt(o *Options, n Neighbor) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.renew = x.renew || x.med != o.MED || !slices.Equal(x.communities, o.Communities)
	x.Neighbor, x.communities, x.med, x.neighbors = n, o.Communities, o.MED, o.Neighbors
	if !x.begun || x.state != established && !x.graceful() {
		return
	}
	if err := x.update(); err != nil {
		x.failed(err.Error())
	}
}

// retire withdraws all prefixes, and ends the session.
func (x *session) retire() {
	x.mu.Lock()
	x.prefixes = nil
	var err error
	if x.begun && x.graceful() {
		err = x.update()
	}
	x.mu.Unlock()
	if err != nil {
		x.failed(err.Error())
	}
	x.end()
}
