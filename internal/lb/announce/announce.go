// SPDX-License-Identifier: Apache-2.0

// Package announce tells routers by BGP that this machine takes the traffic for some prefixes, and withdraws them.
// It only announces: what routers announce is not used, nor passed on. Routers that hear the same prefix
// from several machines spread the traffic over them.
package announce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Options says who speaks, and to whom.
type Options struct {
	ASN      uint32     // our autonomous system
	RouterID netip.Addr // IPv4; different on each machine
	// Neighbors are the routers; at least one. All connections are opened from here, nothing listens.
	Neighbors []Neighbor
	// HoldTime is how long a neighbor keeps the prefixes when it hears nothing, in whole seconds, at least 3; 9 s
	// if zero. A neighbor may ask for less. Keepalives go out three times as often.
	HoldTime time.Duration
	// GracefulRestart is how long the neighbors are to keep the prefixes when a session ends unless they are withdrawn before, in
	// whole seconds, 4095 at most (RFC 4724). If it is zero they are withdrawn with the end.
	GracefulRestart time.Duration
	// Communities (RFC 1997) are given to every prefix, upper half the autonomous system.
	Communities []uint32
	// MED is given to every prefix unless zero: a router prefers the machine with the lowest one.
	MED uint32
	Log *slog.Logger // nothing is logged if nil
}

// Neighbor is a router. Prefixes of both families are announced to it if it takes them.
type Neighbor struct {
	Address netip.Addr
	ASN     uint32
	// LocalAddress is where the connection comes from. The kernel chooses if it is not set.
	LocalAddress netip.Addr
	// Password signs the connection's segments (TCP MD5, RFC 2385), 80 bytes at most, unless it is empty.
	Password string
	// Multihop is the TTL towards a router of another autonomous system that is not on the link, at least 2. 0: it is
	// on the link. Routers of our own system may be anywhere.
	Multihop uint8
	// TTLSecurity takes only packets with TTL 255, which no router has forwarded, and sends such (GTSM, RFC 5082). The
	// neighbor has to do so too, and be on the link.
	TTLSecurity bool
	// NextHop4 and NextHop6 are where it is to send the traffic. If not set that is the session's own local address, and for
	// the other family an address of the interface that has the local address.
	NextHop4, NextHop6 netip.Addr
}

// State tells of the session with a neighbor.
type State struct {
	Address netip.Addr
	ASN     uint32
	// State is the name in RFC 4271, lower case: idle, active, opensent, openconfirm, established. Connecting is active.
	State string
	Since time.Time // of the state
	// Announced is how many prefixes it has been told of, and Prefixes which, sorted. They may be fewer than are to be
	// announced: see LastError.
	Announced int
	Prefixes  []netip.Prefix
	// Carries4 and Carries6 tell for which families it is, or will be once it is established: with a session of each family
	// one may be for its own alone.
	Carries4, Carries6 bool
	// LastError says why the session is not established, or why prefixes are not announced over it. One line, or empty.
	LastError string
}

// Speaker announces prefixes to its neighbors until it is closed. Its methods may be called at any time from anywhere.
type Speaker struct {
	sessions []*session
	cancel   context.CancelFunc
	ended    chan struct{} // closed when all sessions have ended

	mu     sync.Mutex
	wanted []netip.Prefix // sorted
	closed bool
}

var errClosed = errors.New("announce prefixes: the speaker is closed")

// Start begins to connect to the neighbors, and returns at once. With a graceful restart it waits for the first Set before it
// connects: a neighbor drops, once it has been told everything, what it has kept and was not told of again. The
// sessions end with Close or when ctx is done; both withdraw all that was announced unless the restart is graceful. It fails
// if the options are wrong or ctx is done. The sockets are made in the process's own network namespace.
func Start(ctx context.Context, o Options) (*Speaker, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start to speak BGP: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &Speaker{cancel: cancel, ended: make(chan struct{})}
	for _, n := range o.Neighbors {
		s.sessions = append(s.sessions, newSession(&o, n))
	}
	// gobgp keeps settings of all its servers in common, so all are there before the first does anything.
	err := s.each(func(x *session) error { return x.start(ctx) })
	if err == nil {
		err = s.each(func(x *session) error { return x.connect(ctx) })
	}
	context.AfterFunc(ctx, s.end)
	if err != nil {
		cancel()
		<-s.ended
		return nil, err
	}
	return s, nil
}

func (s *Speaker) each(f func(*session) error) error {
	for _, x := range s.sessions {
		if err := f(x); err != nil {
			return fmt.Errorf("speak BGP with %s: %w", x.Address, err)
		}
	}
	return nil
}

// end ends all sessions at the same time.
func (s *Speaker) end() {
	s.mu.Lock()
	s.closed = true
	s.wanted = nil
	s.mu.Unlock()
	var all sync.WaitGroup
	for _, x := range s.sessions {
		all.Go(x.end)
	}
	all.Wait()
	close(s.ended)
}

// Set says what is to be announced from now on, in place of what was: what is new goes to the established sessions
// before it returns, what is gone is withdrawn. Sessions that are established later announce it then. If it fails the
// prefixes are as before, except when a session failed: then the next Set makes good what is missing.
func (s *Speaker) Set(ctx context.Context, prefixes []netip.Prefix) error {
	wanted := slices.Clone(prefixes)
	for _, p := range wanted {
		if err := checkPrefix(p); err != nil {
			return err
		}
	}
	slices.SortFunc(wanted, netip.Prefix.Compare)
	wanted = slices.Compact(wanted)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("announce prefixes: %w", err)
	}
	s.wanted = wanted
	var errs []error
	for _, x := range s.sessions {
		if err := x.set(wanted); err != nil {
			errs = append(errs, fmt.Errorf("announce prefixes to %s: %w", x.Address, err))
		}
	}
	return errors.Join(errs...)
}

// Announced returns what is to be announced, sorted.
func (s *Speaker) Announced() []netip.Prefix {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.wanted)
}

// Neighbors tells of the sessions, in the order of the options.
func (s *Speaker) Neighbors() []State {
	all := make([]State, 0, len(s.sessions))
	for _, x := range s.sessions {
		all = append(all, x.status())
	}
	return all
}

// Close ends the sessions with a notification, upon which the neighbors drop the prefixes at once, and returns when that
// is done or ctx is. Neighbors that take part in a graceful restart are not notified, and keep them for its time.
// Closing again waits for the same end.
func (s *Speaker) Close(ctx context.Context) error {
	s.cancel()
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("end the BGP sessions: %w", ctx.Err())
	}
}
