// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"net/netip"
	"time"

	"culvert/internal/lb/peerstate"
)

const (
	// helloPeriod is the longest time between two datagrams to the peers. One without flows says that this machine is there.
	helloPeriod = time.Second
	// silence is the time after which a peer that has not been heard is down.
	silence = 5 * time.Second
	// askPeriod is the shortest time between two questions to a peer for its epoch. An answer counts within askWithin.
	askPeriod = time.Second
	askWithin = 5 * time.Second
	// differWithin is how long rings may differ. Changes reach machines one after the other.
	differWithin = 10 * time.Second
	// claimRate is how many datagrams in the name of a peer are looked at in a second that do not have its epoch: most of a CPU's time is
	// left when somebody forges them. Who does not see the peer's datagrams cannot guess its epoch, and so takes no time from those.
	claimRate = 20_000
	// wrongFor is how long it is said what was wrong with a datagram, and the shortest time between two lines of the log about that.
	wrongFor = time.Minute
)

// peer is what is known of another machine.
type peer struct {
	at netip.AddrPort

	known  bool // the epoch is confirmed
	epoch  uint64
	window window
	asking bool            // an answer to the last question for its epoch counts
	nonce  [nonceSize]byte // of that question
	asked  time.Time

	up          bool
	since       time.Time // of up
	heard       time.Time
	otherSeed   bool
	ringsDiffer time.Time // since when, zero if they agree
	otherRings  bool      // they have differed for longer than differWithin

	datagrams map[string]uint64
	wrong     string
	wrongAt   time.Time
	logged    map[string]time.Time // when what is wrong was logged last, by result
	mayTell   bucket               // flows
	maySend   bucket               // datagrams with flows that are its own, and new
	mayClaim  bucket               // datagrams with another epoch than the peer's, before their MAC is checked
	mayAsk    bucket
}

// bucket limits a rate.
type bucket struct {
	rate, burst, left float64
	at                time.Time
}

func newBucket(rate, burst float64) bucket { return bucket{rate: rate, burst: burst, left: burst} }

// take takes n out of the bucket, if there is as much.
func (b *bucket) take(n float64, now time.Time) bool {
	if !b.at.IsZero() {
		b.left = min(b.burst, b.left+b.rate*now.Sub(b.at).Seconds())
	}
	b.at = now
	if b.left < n {
		return false
	}
	b.left -= n
	return true
}

func newPeer(at netip.AddrPort, rate int) *peer {
	p := &peer{at: at, since: time.Now(), datagrams: make(map[string]uint64), logged: make(map[string]time.Time)}
	for _, result := range peerstate.Datagrams {
		p.datagrams[result] = 0
	}
	flows := 2 * float64(rate)
	p.mayTell = newBucket(flows, max(flows, 1000))
	// Flows of few VIPs and backends come a hundred in a datagram. Others make more of them.
	datagrams := flows/10 + 200
	p.maySend = newBucket(datagrams, datagrams)
	p.mayClaim = newBucket(claimRate, claimRate)
	p.mayAsk = newBucket(5, 5)
	return p
}

// complain counts a datagram that was not taken, and remembers why. Whoever can forge an address may not fill the log.
func (s *Service) complain(p *peer, result, why string) {
	p.datagrams[result]++
	now := time.Now()
	if now.Sub(p.logged[result]) > wrongFor {
		p.logged[result] = now
		s.o.Log.Warn("a datagram in the name of a peer of the load balancer was not taken", "peer", p.at, "why", why)
	}
	p.wrong, p.wrongAt = why, now
}

// hear notes that a peer is there.
func (s *Service) hear(p *peer, h *header, now time.Time) {
	p.heard = now
	if !p.up {
		p.up, p.since = true, now
		s.o.Log.Info("a peer of the load balancer is there", "peer", p.at)
	}
	if s.names == nil || h.sums == (sums{}) {
		return
	}
	other := h.sums.seed != s.names.sums.seed
	if other && !p.otherSeed {
		s.o.Log.Error("a peer of the load balancer has another seed or ring_size: most flows that move between the machines break; "+
			"compare 'culvert lb show' on both", "peer", p.at)
	}
	p.otherSeed = other
	switch {
	case h.sums.rings == s.names.sums.rings || other:
		p.ringsDiffer = time.Time{}
	case p.ringsDiffer.IsZero():
		p.ringsDiffer = now
	}
}

// look notes which peers are silent, and whose rings still differ.
func (s *Service) look(now time.Time) {
	for _, p := range s.peers {
		if p.up && now.Sub(p.heard) > silence {
			p.up, p.since = false, now
			s.o.Log.Warn("a peer of the load balancer is silent", "peer", p.at)
		}
		if p.wrong != "" && now.Sub(p.wrongAt) > wrongFor {
			p.wrong = ""
		}
		differ := p.up && !p.ringsDiffer.IsZero() && now.Sub(p.ringsDiffer) > differWithin
		if differ && !p.otherRings {
			s.o.Log.Warn("a peer of the load balancer has other rings: VIPs, backends, weights, drains or results of checks differ, and flows "+
				"that move between the machines may break; compare 'culvert lb show' on both", "peer", p.at)
		}
		p.otherRings = differ
	}
}
