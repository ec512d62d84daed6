// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/lb"
	"culvert/internal/lb/announce"
	"culvert/internal/lb/bgpstate"
	"culvert/internal/lb/peers"
	"culvert/internal/lb/sourcestate"
	"culvert/internal/stage"
)

// service is what a Serve passes on to the next one of the process: the BGP sessions, and what lb.Run knows. Prepared stages that
// succeed each other share it.
type service struct {
	handover lb.Handover // of the one lb.Run at a time

	mu      sync.Mutex
	holders int               // prepared stages that may still serve
	speaker *announce.Speaker // nil if nothing is announced
	leaving sync.WaitGroup    // speakers that are no longer wanted
	// off is set once the load balancer is off.
	off       bool
	published []*publisher // none if nobody serves
	feeds     *feeds       // nil if no sources are asked
	exchange  exchange     // of flows with peers
}

func newService() *service {
	return &service{handover: lb.Handover{Succeeded: stage.ErrSucceeded}, holders: 1}
}

func (s *service) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holders++
}

// release ends the service when nobody holds it any more.
func (s *service) release() error {
	s.mu.Lock()
	s.holders--
	last, off := s.holders == 0, s.off
	s.mu.Unlock()
	if !last {
		return nil
	}
	if off {
		s.silence()
	}
	return s.end()
}

// run runs the load balancer, announces its VIPs and asks the sources of its backends until ctx ends. If the cause is stage.ErrSucceeded the BGP sessions stay, for
// the next run.
func (s *service) run(ctx context.Context, o lb.Options, p *Plan, sockets *peers.Sockets) error {
	o.Handover = &s.handover
	exchanges, err := s.exchange.begin(p.peers, sockets, o.Instance, o.Log)
	if err != nil {
		return errors.Join(err, s.end())
	}
	if exchanges != nil {
		o.Peers = exchanges
	}
	speaker, err := s.speak(ctx, p.bgp, o.Log)
	if err != nil {
		return errors.Join(err, s.end())
	}
	if speaker != nil {
		o.Announcer = speaker
	}
	feeding, stop := context.WithCancel(ctx)
	fed := startFeeds(feeding, o.Instance, p.sources, o.Log)
	s.mu.Lock()
	s.feeds = fed
	s.mu.Unlock()
	s.publish(o.Instance, o.Log)
	err = lb.Run(ctx, o)
	stop()
	fed.wait()
	if errors.Is(context.Cause(ctx), stage.ErrSucceeded) {
		return err
	}
	return errors.Join(err, s.end())
}

// speak returns the speaker with these options, a new one if there is none yet, and nil for no options.
func (s *service) speak(ctx context.Context, bgp *announce.Options, log *slog.Logger) (*announce.Speaker, error) {
	if bgp == nil {
		s.silence()
		return nil, nil
	}
	o := *bgp
	o.Log = log
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off = false
	if s.speaker != nil {
		return s.speaker, s.speaker.Update(o)
	}
	// The speaker must outlive ctx, because lb.Run and Close withdraw prefixes after ctx has ended, and others may go on with it.
	speaker, err := announce.Start(context.WithoutCancel(ctx), o)
	s.speaker = speaker
	return speaker, err
}

// withdrawWait is the longest time for ending the BGP sessions. It leaves time to close the connections after the wait for
// withdrawals.
const withdrawWait = announce.WriteWait + 2*time.Second

// silence withdraws everything and ends the BGP sessions, since the configuration has none any more. It does not wait for that.
func (s *service) silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	speaker := s.speaker
	s.speaker = nil
	if speaker == nil {
		return
	}
	s.leaving.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), withdrawWait)
		defer cancel()
		_ = speaker.Set(ctx, nil) // what could not be withdrawn is logged
		_ = speaker.Close(ctx)
	})
}

// retire withdraws everything and ends the BGP sessions, since the load balancer is off. A neighbor that does not answer takes
// seconds for that, so only end waits for it.
func (s *service) retire() {
	s.silence()
	s.exchange.end()
	s.mu.Lock()
	published := s.published
	s.published = nil
	s.mu.Unlock()
	for _, p := range published {
		p.end()
	}
}

// end ends the BGP sessions as at the end of the process: with a graceful restart, neighbors keep the prefixes.
func (s *service) end() (err error) {
	s.exchange.end()
	s.mu.Lock()
	speaker, published := s.speaker, s.published
	s.speaker, s.published = nil, nil
	s.mu.Unlock()
	if speaker != nil {
		ctx, cancel := context.WithTimeout(context.Background(), withdrawWait)
		defer cancel()
		err = speaker.Close(ctx)
	}
	s.leaving.Wait()
	for _, p := range published {
		p.end()
	}
	return err
}

// sessions returns the state of the BGP sessions, nil without any. It always returns true.
func (s *service) sessions() ([]bgpstate.Session, bool) {
	s.mu.Lock()
	speaker := s.speaker
	s.mu.Unlock()
	if speaker == nil {
		return nil, true
	}
	return sessions(speaker), true
}

// sources returns the state of the sources, none without any. It always returns true.
func (s *service) sources() ([]sourcestate.Source, bool) {
	s.mu.Lock()
	fed := s.feeds
	s.mu.Unlock()
	return fed.states(), true
}

// publish stores the states of sessions and sources for an instance, also if there are none: so readers need not take them for unknown.
func (s *service) publish(inst *datapath.Instance, log *slog.Logger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.published == nil {
		s.published = []*publisher{
			newPublisher(bgpstate.Kind, "the BGP sessions", s.sessions, inst, log),
			newPublisher(sourcestate.Kind, "the sources of backends", s.sources, inst, log),
		}
		return
	}
	for _, p := range s.published {
		p.follow(inst)
	}
}
