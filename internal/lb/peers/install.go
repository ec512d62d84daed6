// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"time"

	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/peerstate"
)

// install puts flows that a peer has told into the flow table, as far as they are not there. It returns false if there is no flow table
// now.
func (s *Service) install(flows []toldFlow) bool {
	if len(flows) == 0 {
		return true
	}
	if s.x == nil || s.names == nil {
		return false
	}
	open, err := s.x.Follow()
	if s.open = open; err != nil || !open {
		return false // turn says so
	}
	for n := range flows {
		result, err := s.installOne(&flows[n])
		s.failing("flows of peers do not get into the flow table", err)
		s.counts.flows[result]++
	}
	return true
}

func (s *Service) installOne(f *toldFlow) (result string, err error) {
	vip, ok := s.names.vips[f.service]
	if !ok {
		return peerstate.NoVIP, nil
	}
	id, ok := s.names.ids[backendKey{vip, f.backend}]
	switch {
	case !ok:
		return peerstate.NoBackend, nil
	case s.names.backends[id].lost:
		return peerstate.BackendDown, nil
	}
	at, ok := s.x.At(f.state, f.idle)
	if !ok {
		return peerstate.Expired, nil
	}
	k, as := lbplane.NewFlowKey(vip, f.client, f.port), lbplane.Held{Backend: id, Time: at}
	was, there := s.x.Find(k)
	if !there {
		if len(s.held) >= s.limit() {
			return peerstate.OverLimit, nil
		}
		return s.put(k, as, nil, peerstate.Installed)
	}
	before, told := s.held[k]
	told = told && before.Held == was
	switch {
	case s.x.Expired(was.Time):
		return s.put(k, as, &was, peerstate.Installed)
	case was.Backend == id && s.later(as, was, told):
		return s.put(k, as, &was, peerstate.Refreshed)
	case was.Backend == id:
		return peerstate.Known, nil
	case told:
		return s.put(k, as, &was, peerstate.Replaced)
	}
	return peerstate.Conflict, nil
}

// later tells whether a flow as it is told has had a packet later than was, or is in another state by the same packet.
func (s *Service) later(as, was lbplane.Held, told bool) bool {
	a, b := s.x.Idle(as.Time), s.x.Idle(was.Time)
	return a < b || a == b && told && as.Time.State() != was.Time.State()
}

// put puts a flow into the table.
func (s *Service) put(k lbplane.FlowKey, as lbplane.Held, was *lbplane.Held, done string) (string, error) {
	result, err := s.x.Put(k, as, was)
	switch {
	case err != nil || result == lbplane.PutFull:
		return peerstate.Full, err
	case result == lbplane.PutKept:
		return peerstate.Conflict, nil // a packet came meanwhile
	}
	if _, known := s.held[k]; known || len(s.held) < s.limit() {
		s.held[k] = held{as, time.Now()}
	}
	return done, nil
}
