// SPDX-License-Identifier: Apache-2.0

package pipelinefuzz

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"culvert/internal/scion/scionpkt"
)

// Limits of TestLimits in packets: for each domain, and beyond that for all domains together. The interval is so long that no
// token is added while the test runs, however slow the machine is.
const (
	limitInterval = 1 << 54 // ns
	limitBurst    = limitInterval*25 + limitInterval/2
	limitOwn      = 3  // a tenth of the rate: due 0, 10 and 20 intervals ahead
	limitCommon   = 26 // due 0 to 25 ahead
)

// domain is a set of senders whose packets a limit counts together: a link, or the hosts or services behind a device.
type domain struct {
	link, device int // one of them -1
	services     bool
}

// limits counts the packets that were let through since the limits were set.
type limits struct {
	// sure counts packets that were certainly let through, most also those that may have been.
	sure, most map[string]map[domain]int
}

func newLimits() *limits {
	return &limits{sure: make(map[string]map[domain]int), most: make(map[string]map[domain]int)}
}

// room reports whether there is room for one more packet of a domain, in its own share or in the common one.
func room(used map[domain]int, d domain) bool {
	return used[d] < limitOwn || beyond(used) < limitCommon
}

// beyond returns how many packets have used the common share.
func beyond(used map[domain]int) (common int) {
	for n := range maps.Values(used) {
		common += max(0, n-limitOwn)
	}
	return common
}

// limitDomain returns the domain to which a packet is charged.
func (b *bed) limitDomain(tr trial, reason string) domain {
	d := domain{link: -1, device: tr.in}
	if !strings.Contains(reason, " scion-") {
		return d
	}
	link := b.link(tr.frame)
	if link >= 0 && b.net.Links[link].Scope != scionpkt.Internal {
		return domain{link: link, device: -1}
	}
	v := decode(tr.frame)
	d.services = v.src == b.servicesAt()
	return d
}

// answersLimited are the answers under a limit, by the reason of a packet that is not answered.
var answersLimited = map[string]string{"drop lb-unclaimed": "fwd lb-unreachable", "drop lb-too-big": "fwd lb-too-big"}

// underLimit reports whether a reason has a limit.
func underLimit(reason string) bool {
	return strings.HasPrefix(reason, "punt ") || slices.Contains(slices.Collect(maps.Values(answersLimited)), reason)
}

// mayAnswer reports whether the limit of an answer certainly has room.
func (b *bed) mayAnswer(tr trial, reason string) bool {
	return b.limited == nil || room(b.limited.most[reason], b.limitDomain(tr, reason))
}

// checkLimit returns an error if a limit with room refused a packet, or one without room let it through.
func (b *bed) checkLimit(tr trial, o outcome) error {
	if b.limited == nil {
		if o.limited {
			return errors.New("there is no limit")
		}
		return nil
	}
	if !underLimit(o.reason) {
		return nil
	}
	d := b.limitDomain(tr, o.reason)
	switch {
	case o.limited && room(b.limited.most[o.reason], d):
		return fmt.Errorf("refused, though only %d of %+v were let through", b.limited.most[o.reason][d], d)
	case !o.limited && !room(b.limited.sure[o.reason], d):
		return fmt.Errorf("let through, after %d of %+v", b.limited.sure[o.reason][d], d)
	}
	return nil
}

// charge counts a packet that a limit let through.
func (b *bed) charge(tr trial, o outcome) {
	if b.limited == nil || o.limited {
		return
	}
	add := func(to map[string]map[domain]int, reason string) {
		if to[reason] == nil {
			to[reason] = make(map[domain]int)
		}
		to[reason][b.limitDomain(tr, reason)]++
	}
	// Some packets that are not answered are charged, before the program finds that there is no room to write the answer.
	if answer := answersLimited[o.reason]; answer != "" && room(b.limited.most[answer], b.limitDomain(tr, answer)) {
		add(b.limited.most, answer)
	}
	if underLimit(o.reason) {
		add(b.limited.sure, o.reason)
		add(b.limited.most, o.reason)
	}
}

// setLimits sets all default limits to those of the model, with nothing used up.
func (b *bed) setLimits() error {
	b.limited = newLimits()
	for _, i := range b.withLimit {
		limit := [3]uint64{limitInterval, limitBurst, 0}
		if err := b.limits.Put(i, limit); err != nil {
			return fmt.Errorf("set limit %d: %w", i, err)
		}
	}
	shares, err := b.findMap("limit_shares")
	if err != nil {
		return err
	}
	defer shares.Close()
	keys := make([]uint32, shares.MaxEntries())
	for n := range keys {
		keys[n] = uint32(n)
	}
	_, err = shares.BatchUpdate(keys, make([]uint64, len(keys)), nil)
	return err
}

// punted are frames that go by a limit, by other devices too.
func (b *bed) punted(t *testing.T, rng *rand.Rand) (all []trial) {
	t.Helper()
	for _, tr := range b.lieCorpus(rng) {
		for range 3 {
			o, err := b.try(tr)
			if err != nil {
				t.Fatal(err)
			}
			if underLimit(o.reason) {
				all = append(all, tr)
			}
			tr = b.astray(tr)
		}
	}
	return all
}

// TestLimits sends more packets of all domains than the limits let through. No packet may be refused while its domain's share
// or the common one has room, and none may be let through once both are used up.
func TestLimits(t *testing.T) {
	b := newBed(t, allStages)
	rng := rand.New(rand.NewPCG(trialSeed, 6))
	all := b.punted(t, rng)
	refused, reasons, own := make(map[domain]int), make(map[string]bool), 0
	for round := range 6 {
		if err := b.do(b.setLimits); err != nil {
			t.Fatal(err)
		}
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		// Packets by one of the devices come after the others have used up the common share.
		late := round % len(b.net.Devices)
		for _, now := range []bool{false, true} {
			for n := range 8 * len(all) {
				tr := all[n%len(all)]
				if (tr.in == late) != now {
					continue
				}
				if err := b.do(func() error { return b.tryLimited(tr, refused, reasons, &own) }); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	kinds := make(map[string]int)
	for d := range refused {
		switch {
		case d.link >= 0:
			kinds["link"]++
		case d.services:
			kinds["services"]++
		default:
			kinds["hosts"]++
		}
	}
	t.Logf("refused for %d reasons, in domains %v; %d let through by their own share when all shared was used up", len(reasons), kinds, own)
	if kinds["link"] < 2 || kinds["services"] < 1 || kinds["hosts"] < 2 || len(reasons) < 10 || own < 10 {
		t.Error("the limits were hardly met")
	}
}

// tryLimited tries a frame, and also checks that the model rejects the opposite outcome.
func (b *bed) tryLimited(tr trial, refused map[domain]int, reasons map[string]bool, own *int) error {
	o, err := b.run(tr)
	if err != nil {
		return err
	}
	if err := b.check(tr, o); err != nil {
		return fmt.Errorf("%q, limited %v: %w\n%x", o.reason, o.limited, err, tr.frame[:min(len(tr.frame), 200)])
	}
	d := b.limitDomain(tr, o.reason)
	if strings.HasPrefix(o.reason, "punt ") {
		lie := o
		lie.limited = !o.limited
		lie.action = map[bool]uint32{true: xdpDrop, false: xdpPass}[lie.limited]
		lie.frame = tr.frame
		if b.check(tr, lie) == nil {
			return fmt.Errorf("%q was limited: %v, and the contrary was believed", o.reason, o.limited)
		}
		if o.limited {
			refused[d]++
			reasons[o.reason] = true
		} else if beyond(b.limited.sure[o.reason]) >= limitCommon {
			*own++
		}
	}
	b.charge(tr, o)
	return nil
}
