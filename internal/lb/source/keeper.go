// SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"culvert/internal/lb"
)

// Rules say how much of a source's answers is believed, and when.
type Rules struct {
	// Keep is the share of the backends, in percent, that an answer has to leave to be believed at once. With 0 every answer is, also an
	// empty one; otherwise no empty one ever is.
	Keep int
	// KeepFor is for how long an answer that leaves fewer has to stay the same to be believed.
	KeepFor time.Duration
	// Damp is for how long a backend has to stay in the answers, out of them, or as it is in them, for that to count.
	Damp time.Duration
	// Drain is for how long a backend that is named no more keeps its flows.
	Drain time.Duration
}

// Defaults of Rules.
const (
	DefaultKeep    = 50
	DefaultKeepFor = 5 * time.Minute
	DefaultDamp    = 2 * time.Second
	DefaultDrain   = 30 * time.Second
)

// Keeper decides what of a source's answers is brought into force. It does not look at the clock itself, and is for one goroutine.
type Keeper struct {
	rules    Rules
	inForce  map[netip.Addr]lb.Offer   // without those that leave
	leaving  map[netip.Addr]leaver     // those that are named no more
	answered bool                      // there was an answer
	seen     map[netip.Addr]appearance // how each backend is in the answers, of all that are or were there
	// full is how many backends there were before they became fewer at shrunk: several answers together may not take more away than one
	// alone. shrunk is zero if they have not become fewer.
	full   int
	shrunk time.Time
	failed bool                    // the source has not answered since
	held   map[netip.Addr]lb.Offer // what is not believed yet, nil for nothing
	since  time.Time               // since when held is the same
	why    string
}

// leaver is a backend that is named no more, and until when it stays.
type leaver struct {
	offer lb.Offer
	until time.Time
}

// appearance is how a backend is in the answers since a time.
type appearance struct {
	offer lb.Offer
	named bool
	since time.Time
}

// NewKeeper begins with the backends that are in force.
func NewKeeper(rules Rules, inForce []lb.Offer, now time.Time) *Keeper {
	k := &Keeper{
		rules: rules, inForce: make(map[netip.Addr]lb.Offer), leaving: make(map[netip.Addr]leaver), seen: make(map[netip.Addr]appearance),
	}
	for _, o := range inForce {
		if o.Leaving {
			k.leaving[o.Addr] = leaver{o, now.Add(rules.Drain)}
		} else {
			k.inForce[o.Addr] = o
		}
	}
	return k
}

// Answer takes an answer of the source.
func (k *Keeper) Answer(offers []lb.Offer, now time.Time) {
	first := !k.answered
	k.answered, k.failed = true, false
	named := make(map[netip.Addr]bool, len(offers))
	for _, o := range offers {
		named[o.Addr] = true
		if was := k.seen[o.Addr]; !was.named || was.offer != o {
			k.seen[o.Addr] = appearance{o, true, now}
		}
	}
	for a, was := range k.seen {
		if !named[a] && was.named {
			k.seen[a] = appearance{was.offer, false, now}
		}
	}
	if !first {
		return
	}
	for a, o := range k.inForce { // they were in the answers before the process
		if _, known := k.seen[a]; !known {
			k.seen[a] = appearance{o, false, now}
		}
	}
	if len(k.inForce) == 0 { // without any backend there is nothing to be damped
		for a, s := range k.seen {
			s.since = now.Add(-k.rules.Damp)
			k.seen[a] = s
		}
	}
}

// Fail takes note of a source that could not be asked: everything stays, and what was not believed has to stay the same once more.
func (k *Keeper) Fail() { k.failed, k.held, k.why = true, nil, "" }

// Proposal is what is to be in force.
type Proposal struct {
	// Offers are the backends, by address.
	Offers []lb.Offer
	// Again is when to ask the next time, zero for after the next answer.
	Again time.Time

	target map[netip.Addr]lb.Offer
	left   map[netip.Addr]leaver
	// confirmed is set if target was not believed at first and has stayed the same since.
	confirmed bool
}

// Propose returns what is to be in force now.
func (k *Keeper) Propose(now time.Time) Proposal {
	var p Proposal
	again := func(at time.Time) {
		if p.Again.IsZero() || at.Before(p.Again) {
			p.Again = at
		}
	}
	p.target = maps.Clone(k.inForce)
	if k.answered && !k.failed {
		target := k.damped(now, again)
		var believed bool
		if believed, p.confirmed = k.believed(target, now, again); believed {
			p.target = target
		}
	}
	p.left = make(map[netip.Addr]leaver)
	for a, l := range k.leaving {
		if _, back := p.target[a]; !back && now.Before(l.until) {
			p.left[a] = l
		}
	}
	for a, o := range k.inForce {
		if _, stays := p.target[a]; !stays && k.rules.Drain > 0 {
			o.Leaving = true
			p.left[a] = leaver{o, now.Add(k.rules.Drain)}
		}
	}
	for _, l := range p.left {
		again(l.until)
		p.Offers = append(p.Offers, l.offer)
	}
	p.Offers = slices.AppendSeq(p.Offers, maps.Values(p.target))
	slices.SortFunc(p.Offers, func(a, b lb.Offer) int { return a.Addr.Compare(b.Addr) })
	return p
}

// damped returns the backends of the answers, where one that has changed lately is as it was before.
func (k *Keeper) damped(now time.Time, again func(time.Time)) map[netip.Addr]lb.Offer {
	target := maps.Clone(k.inForce)
	for a, s := range k.seen {
		was, in := k.inForce[a]
		if s.named == in && (!in || s.offer == was) {
			if !s.named {
				delete(k.seen, a)
			}
			continue
		}
		if due := s.since.Add(k.rules.Damp); now.Before(due) {
			again(due)
			continue
		}
		if s.named {
			target[a] = s.offer
		} else {
			delete(target, a)
		}
	}
	return target
}

// believed returns whether target is to be believed, and whether only because it has stayed the same.
func (k *Keeper) believed(target map[netip.Addr]lb.Offer, now time.Time, again func(time.Time)) (believed, confirmed bool) {
	full, stay := k.before(now), k.staying(target)
	if stay == len(k.inForce) || k.rules.Keep == 0 || len(target) > 0 && stay*100 >= k.rules.Keep*full {
		k.held, k.why = nil, ""
		return true, false
	}
	if k.held == nil || !maps.Equal(k.held, target) {
		k.held, k.since = target, now
	}
	if len(target) == 0 {
		k.why = fmt.Sprintf("it names no backends: the last %d stay", len(k.inForce))
		return false, false
	}
	due := k.since.Add(k.rules.KeepFor)
	if !now.Before(due) {
		return true, true
	}
	again(due)
	k.why = fmt.Sprintf("it leaves %d of %d backends, less than keep = \"%d%%\" says: all %d stay until it has said the same for %v",
		stay, full, k.rules.Keep, len(k.inForce), k.rules.KeepFor)
	return false, false
}

// before returns how many backends there were before they became fewer.
func (k *Keeper) before(now time.Time) int {
	if k.shrunk.IsZero() || now.Sub(k.shrunk) >= k.rules.KeepFor {
		return len(k.inForce)
	}
	return k.full
}

// staying returns how many backends in force are in target.
func (k *Keeper) staying(target map[netip.Addr]lb.Offer) (n int) {
	for a := range k.inForce {
		if _, stays := target[a]; stays {
			n++
		}
	}
	return n
}

// Commit takes over a proposal that is in force now. No answer may have come since Propose.
func (k *Keeper) Commit(p Proposal, now time.Time) {
	k.full = max(k.before(now), len(p.target))
	switch {
	case p.confirmed: // what it says is so
		k.shrunk, k.held, k.why = time.Time{}, nil, ""
	case k.staying(p.target) < len(k.inForce):
		k.shrunk = now
	}
	k.inForce, k.leaving = p.target, p.left
}

// Held says why the last answer is not believed, "" if it is.
func (k *Keeper) Held() string { return k.why }

// InForce returns how many backends are in force, and how many others only keep their flows.
func (k *Keeper) InForce() (named, leaving int) { return len(k.inForce), len(k.leaving) }
