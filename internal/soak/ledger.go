// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// cause is a counter that says why packets did not arrive.
type cause struct {
	name string
	// n is how many packets it has counted since the beginning, left how many of these no kind of traffic has claimed.
	n, left uint64
}

// causes are all counters that say why packets did not arrive, in the order in which they are asked.
type causes []*cause

// add adds a counter. One that has counted nothing is left out.
func (c *causes) add(name string, n uint64) {
	if n > 0 {
		*c = append(*c, &cause{name: name, n: n, left: n})
	}
}

// line is what has become of one kind of traffic.
type line struct {
	kind                   string
	sent, arrived, missing uint64
	// twice counts arrivals of a number beyond those that were sent.
	twice uint64
	// exact is the name of the counter that must have counted each missing packet and no other, "" if there is none.
	exact string
	// none is set if no packet may arrive.
	none bool
	by   []share
}

// share is how many packets a cause explains.
type share struct {
	name string
	n    uint64
}

// count compares how often each number of a kind has arrived with how often it was sent.
func (l *line) count(sent func(number int) uint64, arrived []uint64) {
	for number, got := range arrived {
		want := sent(number)
		l.sent += want
		l.arrived += min(want, got)
		l.missing += max(want, got) - got
		l.twice += max(want, got) - want
	}
}

// inTurns returns how often each number below numbers was sent if they take turns.
func inTurns(sent uint64, numbers int) func(int) uint64 {
	return func(number int) uint64 {
		n := sent / uint64(numbers)
		if uint64(number) < sent%uint64(numbers) {
			n++
		}
		return n
	}
}

// unexplained is how many packets are missing, or too many, for which there is no cause.
func (l *line) unexplained() uint64 {
	n := l.missing + l.twice
	for _, s := range l.by {
		n -= min(n, s.n)
	}
	return n
}

// explain has causes explain what is missing.
func (l *line) explain(all causes, may func(cause string) bool) {
	left := l.missing
	for _, c := range all {
		if left == 0 || c.left == 0 || !may(c.name) {
			continue
		}
		n := min(left, c.left)
		left -= n
		c.left -= n
		l.by = append(l.by, share{c.name, n})
	}
}

// reasons says what explains missing packets, in one line.
func (l *line) reasons() string {
	var all []string
	for _, s := range l.by {
		all = append(all, fmt.Sprintf("%d %s", s.n, s.name))
	}
	return strings.Join(all, ", ")
}

// ledger is the account of all packets.
type ledger struct {
	lines  []*line
	causes causes
	ports  []portLine
	// troubles are all things that should not have happened.
	troubles []string
}

// portLine compares what an interface has received with what the programs have counted there.
type portLine struct {
	name              string
	received, counted uint64
}

func (l *ledger) trouble(format string, args ...any) {
	l.troubles = append(l.troubles, fmt.Sprintf(format, args...))
}

// judge has the causes explain all lines, and notes what remains. may tells whether a cause can explain a kind.
func (l *ledger) judge(may func(kind, cause string) bool) {
	exact := map[string]bool{}
	for _, x := range l.lines {
		if x.exact != "" {
			exact[x.exact] = true
		}
	}
	explains := func(x *line, cause string) bool {
		if exact[cause] {
			return cause == x.exact
		}
		return may(x.kind, cause)
	}
	// A counter that can be of few kinds is asked before one that can be of many, which others may need.
	kindsOf := map[*cause]int{}
	for _, c := range l.causes {
		for _, x := range l.lines {
			if explains(x, c.name) {
				kindsOf[c]++
			}
		}
	}
	slices.SortStableFunc(l.causes, func(a, b *cause) int { return cmp.Compare(kindsOf[a], kindsOf[b]) })
	for _, x := range l.lines {
		x.explain(l.causes, func(cause string) bool { return explains(x, cause) })
		if n := x.unexplained(); n > 0 {
			l.trouble("%s: %d packets are unexplained: %d missing, %d more than were sent", x.kind, n, x.missing, x.twice)
		}
	}
	for _, x := range l.lines {
		if x.none && x.arrived > 0 {
			l.trouble("%s: %d packets have arrived, and none may", x.kind, x.arrived)
		}
	}
	for _, c := range l.causes {
		if exact[c.name] && c.left > 0 {
			l.trouble("%s has counted %d packets that are not missing", c.name, c.left)
		}
	}
	for _, p := range l.ports {
		if p.received != p.counted {
			l.trouble("%s: %d packets have come in, %d are counted", p.name, p.received, p.counted)
		}
	}
}

// others returns what causes have counted beside the traffic of all kinds.
func (l *ledger) others() []string {
	var all []string
	for _, c := range l.causes {
		if c.left > 0 {
			all = append(all, fmt.Sprintf("%d %s", c.left, c.name))
		}
	}
	slices.Sort(all)
	return all
}
