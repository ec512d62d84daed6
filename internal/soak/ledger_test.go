// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
)

func always(string, string) bool { return true }

// account makes the ledger of one kind of traffic: 10 packets with 4 numbers, of which so many have arrived by number.
func account(exact string, arrived []uint64, more ...*cause) *ledger {
	x := &line{kind: "routed", exact: exact}
	x.count(inTurns(10, 4), arrived)
	return &ledger{lines: []*line{x}, causes: more}
}

// TestLedger wants the ledger to find every packet that is not accounted for.
func TestLedger(t *testing.T) {
	lost := func(n uint64) *cause { return &cause{name: "lost transmit", n: n, left: n} }
	rule := func(n uint64) *cause { return &cause{name: "rule blocked", n: n, left: n} }
	other := account("", []uint64{3, 3, 2, 2})
	none := account("", []uint64{0, 1, 0, 0}, lost(9))
	none.lines[0].none = true
	other.ports = []portLine{{"eth1", 20, 20}, {"eth2", 20, 19}}
	for name, c := range map[string]struct {
		l    *ledger
		want []string
	}{
		"all arrive":                 {account("", []uint64{3, 3, 2, 2}), nil},
		"one is missing":             {account("", []uint64{3, 2, 2, 2}), []string{"routed: 1 packets are unexplained: 1 missing, 0 more"}},
		"one is twice":               {account("", []uint64{3, 3, 2, 3}), []string{"routed: 1 packets are unexplained: 0 missing, 1 more"}},
		"one for another":            {account("", []uint64{3, 3, 3, 1}), []string{"routed: 2 packets are unexplained: 1 missing, 1 more"}},
		"missing and counted":        {account("", []uint64{3, 1, 2, 2}, lost(2)), nil},
		"missing, counted and twice": {account("", []uint64{3, 1, 2, 3}, lost(2)), []string{"routed: 1 packets"}},
		"counted too few":            {account("", []uint64{3, 1, 2, 2}, lost(1)), []string{"routed: 1 packets"}},
		"counted others too":         {account("", []uint64{3, 1, 2, 2}, lost(7)), nil},
		"all dropped by a rule":      {account("rule blocked", []uint64{0, 0, 0, 0}, rule(10)), nil},
		"the rule counts too many":   {account("rule blocked", []uint64{0, 0, 0, 0}, rule(11)), []string{"rule blocked has counted 1 packets that"}},
		"the rule counts too few":    {account("rule blocked", []uint64{0, 0, 0, 0}, rule(9)), []string{"routed: 1 packets"}},
		"one arrives that may not":   {none, []string{"routed: 1 packets have arrived, and none may"}},
		"an interface loses count":   {other, []string{"eth2: 20 packets have come in, 19 are counted"}},
	} {
		c.l.judge(always)
		same := slices.EqualFunc(c.l.troubles, c.want, strings.HasPrefix)
		if !same {
			t.Errorf("%s: %q, want %q", name, c.l.troubles, c.want)
		}
	}
}

// TestOwnCauseFirst wants packets to be explained by the counter that only they can be in, before one that others may need.
func TestOwnCauseFirst(t *testing.T) {
	l := &ledger{causes: causes{{"to-as1: punt scion-link-down", 5, 5}, {"to-as1: punt scion-mac", 7, 7}}}
	for kind, missing := range map[string]uint64{"scion as1 > as3": 4, "scion, former key": 6} {
		l.lines = append(l.lines, &line{kind: kind, sent: missing, missing: missing})
	}
	l.judge(mayExplain)
	if len(l.troubles) > 0 {
		t.Errorf("%q", l.troubles)
	}
	for _, x := range l.lines {
		if want := map[string]string{"scion as1 > as3": "4 to-as1: punt scion-link-down", "scion, former key": "6 to-as1: punt scion-mac"}[x.kind]; x.reasons() != want {
			t.Errorf("%s: %q, want %q", x.kind, x.reasons(), want)
		}
	}
}

// TestCausesOfOthers wants a counter to explain each packet once, and only those that it can have counted.
func TestCausesOfOthers(t *testing.T) {
	l := &ledger{causes: causes{{"rule one", 2, 2}, {"lost", 3, 3}}}
	for _, kind := range []string{"one", "two", "three"} {
		x := &line{kind: kind, sent: 2, missing: 2}
		if kind == "one" {
			x.exact = "rule one"
		}
		l.lines = append(l.lines, x)
	}
	l.judge(func(kind, _ string) bool { return kind != "three" })
	if want := []string{"three: 2 packets are unexplained"}; !slices.EqualFunc(l.troubles, want, strings.HasPrefix) {
		t.Errorf("%q, want %q", l.troubles, want)
	}
	if got := l.lines[1].reasons(); got != "2 lost" {
		t.Errorf("kind two: %q", got)
	}
	if got := l.others(); !slices.Equal(got, []string{"1 lost"}) {
		t.Errorf("others: %q", got)
	}
}
