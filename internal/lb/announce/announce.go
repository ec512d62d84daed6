// SPDX-License-Identifier: Apache-2.0

// Package announce announces prefixes to routers by BGP, and withdraws them, so that the routers send their traffic to
// this machine. It does not use or pass on what routers announce. Routers that receive the same prefix from several
// machines spread the traffic over them.
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

// Options are the options of a Speaker.
type Options struct {
	ASN      uint32     // of this machine's autonomous system
	RouterID netip.Addr // an IPv4 address, different on each machine
	// Neighbors are the routers, at least one. The Speaker opens all connections and does not listen.
	Neighbors []Neighbor
	// HoldTime is how long a neighbor keeps the prefixes without hearing from the Speaker. It is in whole seconds, at
	// least 3 s, and 9 s if zero. A neighbor may ask for less. Keepalives are sent three times as often.
	HoldTime time.Duration
	// GracefulRestart is how long the neighbors keep prefixes that have not been withdrawn after a session has ended, in
	// whole seconds, 4095 s at most (RFC 4724). If it is zero, they drop them at once.
	GracefulRestart time.Duration
	// Communities (RFC 1997) are added to every prefix. The upper half of each is an AS number.
	Communities []uint32
	// MED is added to every prefix unless it is zero. A router prefers the machine with the lowest MED.
	MED uint32
	Log *slog.Logger // nil for no log
}

// Neighbor is a router. It gets prefixes of both families if it accepts them.
type Neighbor struct {
	Address netip.Addr
	ASN     uint32
	// LocalAddress is the source of the connection. If it is invalid, the kernel chooses one.
	LocalAddress netip.Addr
	// Password signs the connection's segments (TCP MD5, RFC 2385) unless it is empty. It has at most 80 bytes.
	Password string
	// Multihop is the TTL of packets to a router of another AS that is not on the link, at least 2. It is 0 for a router
	// on the link. Routers of this machine's AS may be anywhere.
	Multihop uint8
	// TTLSecurity accepts only packets with TTL 255, which no router has forwarded, and sends such packets (GTSM, RFC
	// 5082). The neighbor must be on the link and do the same.
	TTLSecurity bool
	// NextHop4 and NextHop6 are the addresses to which the neighbor sends the traffic. The default is the session's local
	// address for its family, and for the other family an address of the same interface.
	NextHop4, NextHop6 netip.Addr
}

// State is the state of the session with a neighbor.
type State struct {
	Address netip.Addr
	ASN     uint32
	// State is the state's name in RFC 4271, in lower case: idle, active, opensent, openconfirm or established. It is
	// active while connecting.
	State string
	Since time.Time // when the session entered the state
	// Prefixes are the announced prefixes, sorted, and Announced is their number. They may be fewer than those of Set:
	// LastError says why.
	Announced int
	Prefixes  []netip.Prefix
	// Carries4 and Carries6 say which families the session announces, or will announce once it is established. A neighbor
	// may have a session for each family.
	Carries4, Carries6 bool
	// LastError says in one line why the session is not established, or why prefixes are not announced. It is empty
	// without an error.
	LastError string
}

// Speaker announces prefixes to its neighbors until it is closed. Its methods may be called concurrently.
type Speaker struct {
	ctx    context.Context // of the sessions
	cancel context.CancelFunc
	ended  chan struct{}  // closed when all sessions have ended
	work   sync.WaitGroup // sessions that begin, or that end while others go on

	mu       sync.Mutex
	sessions []*session
	// over has, by neighbor, the channel that is closed when its last session is over.
	over     map[netip.Addr]chan struct{}
	prefixes []netip.Prefix // of the last Set
	given    bool           // Set has been called
	closed   bool
}

var errClosed = errors.New("the speaker is closed")

// Start starts connecting to the neighbors, and returns at once. With a graceful restart it connects only after the first
// Set: once a neighbor has received everything, it drops the prefixes that it has kept and that were not announced again.
// The sessions end with Close or when ctx is done. Both withdraw all prefixes unless the restart is graceful. Start returns
// an error if the options are wrong or ctx is done. The sockets are in the network namespace of the process.
func Start(ctx context.Context, o Options) (*Speaker, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start to speak BGP: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &Speaker{ctx: ctx, cancel: cancel, ended: make(chan struct{}), over: make(map[netip.Addr]chan struct{})}
	context.AfterFunc(ctx, s.end)
	if err := s.Update(o); err != nil {
		cancel()
		<-s.ended
		return nil, err
	}
	return s, nil
}

// end ends all sessions at the same time.
func (s *Speaker) end() {
	s.mu.Lock()
	s.closed = true
	sessions := s.sessions
	s.mu.Unlock()
	for _, x := range sessions {
		s.work.Go(x.end)
	}
	s.work.Wait()
	close(s.ended)
}

// Set replaces the prefixes to announce. Before it returns, it announces the new ones on established sessions and withdraws
// the others. Other sessions announce them once they are established. If Set returns an error, the prefixes are as before,
// unless the error is that of a session: then the next Set does what is missing there.
func (s *Speaker) Set(ctx context.Context, prefixes []netip.Prefix) error {
	prefixes = slices.Clone(prefixes)
	for _, p := range prefixes {
		if err := checkPrefix(p); err != nil {
			return err
		}
	}
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	prefixes = slices.Compact(prefixes)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("announce prefixes: %w", errClosed)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("announce prefixes: %w", err)
	}
	s.prefixes, s.given = prefixes, true
	var errs []error
	for _, x := range s.sessions {
		if err := x.set(prefixes); err != nil {
			errs = append(errs, fmt.Errorf("announce prefixes to %s: %w", x.Address, err))
		}
	}
	return errors.Join(errs...)
}

// Neighbors returns the states of the sessions, in the order of Options.Neighbors.
func (s *Speaker) Neighbors() []State {
	s.mu.Lock()
	sessions := s.sessions
	s.mu.Unlock()
	all := make([]State, 0, len(sessions))
	for _, x := range sessions {
		all = append(all, x.status())
	}
	return all
}

// Close ends the sessions with a notification, which makes the neighbors drop the prefixes at once. It returns when the
// sessions have ended or ctx is done. Neighbors with a graceful restart get no notification, and keep the prefixes for the
// restart time. Another Close waits for the same sessions.
func (s *Speaker) Close(ctx context.Context) error {
	s.cancel()
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("end the BGP sessions: %w", ctx.Err())
	}
}
