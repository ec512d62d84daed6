// SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"culvert/internal/lb"
)

// offers returns backends by the last byte of their addresses: "1 2 3*5", where *5 is a weight, and ! one that leaves.
func offers(text string) (all []lb.Offer) {
	for _, word := range strings.Fields(text) {
		o := lb.Offer{Weight: 1, Leaving: strings.HasSuffix(word, "!")}
		n, weight, weighted := strings.Cut(strings.TrimSuffix(word, "!"), "*")
		if weighted {
			fmt.Sscan(weight, &o.Weight)
		}
		o.Addr = netip.MustParseAddr("10.0.0." + n)
		all = append(all, o)
	}
	return all
}

func texts(all []lb.Offer) string {
	var words []string
	for _, o := range all {
		word := strings.TrimPrefix(o.Addr.String(), "10.0.0.")
		if o.Weight != 1 {
			word += fmt.Sprintf("*%d", o.Weight)
		}
		if o.Leaving {
			word += "!"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// TestKeeper follows sources through time. At each step, in seconds, there is an answer, a failure ("-"), or nothing ("."). Then a
// part of the reason for which an answer is held may follow.
func TestKeeper(t *testing.T) {
	rules := Rules{Keep: 50, KeepFor: 60 * time.Second, Damp: 2 * time.Second, Drain: 10 * time.Second}
	type step struct {
		at                float64
		answer, want, why string
	}
	for name, c := range map[string]struct {
		rules   Rules
		inForce string
		steps   []step
	}{
		"the first answer is not damped": {rules, "", []step{{0, ".", "", ""}, {1, "1 2", "1 2", ""}}},
		"what was adopted stays until there is an answer, also a failing one": {rules, "1 2", []step{
			{0, ".", "1 2", ""}, {500, "-", "1 2", ""}, {501, ".", "1 2", ""}, {502, "1 2", "1 2", ""}}},
		"an answer that differs from what was adopted is damped": {rules, "1 2", []step{{0, "1 2 3", "1 2", ""}, {2, ".", "1 2 3", ""}}},
		"changes are damped each by itself": {rules, "1 2 3 4", []step{
			{0, "1 2 3 4", "1 2 3 4", ""}, {10, "1 2 3 4 5", "1 2 3 4", ""}, {11, "1 2 3 4*7 5", "1 2 3 4", ""},
			{12, ".", "1 2 3 4 5", ""}, {13, ".", "1 2 3 4*7 5", ""}}},
		"a backend that flaps stays": {rules, "1 2 3", []step{
			{0, "1 2", "1 2 3", ""}, {1.5, "1 2 3", "1 2 3", ""}, {3, "1 2", "1 2 3", ""}, {4.5, "1 2 3", "1 2 3", ""}, {20, ".", "1 2 3", ""}}},
		"one that flaps does not get in": {rules, "1", []step{
			{0, "1 2", "1", ""}, {1.5, "1", "1", ""}, {3, "1 2", "1", ""}, {4.5, "1", "1", ""}, {20, ".", "1", ""}}},
		"one that is named no more is drained": {rules, "1 2 3", []step{
			{0, "1 2", "1 2 3", ""}, {2, ".", "1 2 3!", ""}, {11.9, ".", "1 2 3!", ""}, {12, ".", "1 2", ""}}},
		"one that comes back while it is drained is as before": {rules, "1 2 3", []step{
			{0, "1 2", "1 2 3", ""}, {2, ".", "1 2 3!", ""}, {5, "1 2 3", "1 2 3!", ""}, {7, ".", "1 2 3", ""}, {60, ".", "1 2 3", ""}}},
		"one that was drained before the process is drained again": {rules, "1 2 3!", []step{
			{0, ".", "1 2 3!", ""}, {1, "1 2", "1 2 3!", ""}, {10, ".", "1 2", ""}}},
		"too few are not believed at first": {rules, "1 2 3 4 5", []step{
			{0, "1 2", "1 2 3 4 5", ""}, {2, ".", "1 2 3 4 5", "leaves 2 of 5"}, {30, "1 2", "1 2 3 4 5", "all 5 stay"},
			{61.9, ".", "1 2 3 4 5", "for 1m0s"}, {62, ".", "1 2 3! 4! 5!", ""}}},
		"too few that change again have to stay anew": {rules, "1 2 3 4 5", []step{
			{2, "1 2", "1 2 3 4 5", ""}, {4, ".", "1 2 3 4 5", "leaves 2"}, {40, "1", "1 2 3 4 5", "leaves 2"}, {42, ".", "1 2 3 4 5", "leaves 1"},
			{64, ".", "1 2 3 4 5", "leaves 1"}, {102, ".", "1 2! 3! 4! 5!", ""}}},
		"a failure begins the time anew": {rules, "1 2 3 4 5", []step{
			{0, "1 2", "1 2 3 4 5", ""}, {2, ".", "1 2 3 4 5", "leaves 2"}, {50, "-", "1 2 3 4 5", ""}, {70, ".", "1 2 3 4 5", ""},
			{80, "1 2", "1 2 3 4 5", "leaves 2"}, {139, ".", "1 2 3 4 5", "leaves 2"}, {140, ".", "1 2 3! 4! 5!", ""}}},
		"others in place of them are too few as well": {rules, "1 2", []step{
			{0, "3 4", "1 2", ""}, {2, ".", "1 2", "leaves 0 of 2"}, {62, ".", "1! 2! 3 4", ""}}},
		"small steps take no more than a large one": {rules, "1 2 3 4 5 6", []step{
			{0, "1 2 3 4", "1 2 3 4 5 6", ""}, {2, ".", "1 2 3 4 5! 6!", ""}, {20, "1 2", "1 2 3 4", ""}, {22, ".", "1 2 3 4", "leaves 2 of 6"},
			{61.9, ".", "1 2 3 4", "leaves 2"}, {62, ".", "1 2 3! 4!", ""}}},
		"half of them is enough":     {rules, "1 2 3 4", []step{{0, "1 2", "1 2 3 4", ""}, {2, ".", "1 2 3! 4!", ""}}},
		"none is never believed":     {rules, "1 2", []step{{0, "", "1 2", ""}, {2, ".", "1 2", "names no backends: the last 2 stay"}, {1000, ".", "1 2", "names no"}}},
		"unless nothing has to stay": {Rules{Damp: time.Second, KeepFor: time.Minute}, "1 2", []step{{0, "", "1 2", ""}, {1, ".", "", ""}}},
		"a failure before the end of the damping leaves everything": {rules, "1 2 3", []step{
			{0, "1 2", "1 2 3", ""}, {1, "-", "1 2 3", ""}, {9, ".", "1 2 3", ""}, {10, "1 2", "1 2 3!", ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			k := NewKeeper(c.rules, offers(c.inForce), start)
			for _, s := range c.steps {
				now := start.Add(time.Duration(s.at * float64(time.Second)))
				switch s.answer {
				case ".":
				case "-":
					k.Fail()
				default:
					k.Answer(offers(s.answer), now)
				}
				p := k.Propose(now)
				if got := texts(p.Offers); got != s.want {
					t.Errorf("at %v s: %q, want %q", s.at, got, s.want)
				}
				k.Commit(p, now)
				if why := k.Held(); !strings.Contains(why, s.why) || (why == "") != (s.why == "") {
					t.Errorf("at %v s: held because %q, want %q", s.at, why, s.why)
				}
			}
		})
	}
}

// TestAgain has the keeper asked again only when it says so: all changes come in time.
func TestAgain(t *testing.T) {
	now := time.Now()
	k := NewKeeper(Rules{Keep: 50, KeepFor: time.Minute, Damp: 2 * time.Second, Drain: 10 * time.Second}, offers("1 2 3"), now)
	k.Answer(offers("1"), now)
	var seen []string
	for {
		p := k.Propose(now)
		k.Commit(p, now)
		seen = append(seen, texts(p.Offers))
		if p.Again.IsZero() {
			break
		}
		if !p.Again.After(now) {
			t.Fatalf("again at once, after %q", seen)
		}
		now = p.Again
	}
	if got, want := strings.Join(seen, ", "), "1 2 3, 1 2 3, 1 2! 3!, 1"; got != want {
		t.Errorf("in force were %s, want %s", got, want)
	}
}

// TestUncommitted has a proposal that could not be brought into force proposed again.
func TestUncommitted(t *testing.T) {
	now := time.Now()
	k := NewKeeper(Rules{Keep: 50, KeepFor: time.Minute}, offers("1 2 3"), now)
	k.Answer(offers("1"), now)
	k.Propose(now)
	now = now.Add(time.Minute)
	for range 2 {
		if got := texts(k.Propose(now).Offers); got != "1" {
			t.Errorf("proposed is %q", got)
		}
	}
}
