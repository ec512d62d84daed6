// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"
)

// measure is a figure that is measured in rounds.
type measure struct {
	// key is its key in Row.Samples.
	key    string
	unit   string
	spread func(*Row) *Spread
	// own is the key of the samples of the same row that the figure is divided by. If it is empty the figure is divided by that of
	// a base row.
	own           string
	lowerIsBetter bool
}

// measures are all such figures.
var measures = []measure{
	{key: "mpps", unit: "Mpps", spread: func(row *Row) *Spread { return row.Mpps }},
	{key: "ndr_mpps", unit: "NDR", spread: func(row *Row) *Spread { return row.NDR }},
	{key: "connections_per_second", unit: "connections/s", spread: func(row *Row) *Spread {
		if row.Connections == nil {
			return nil
		}
		return &row.Connections.Rate
	}},
	{key: "gbit_per_second", unit: "Gbit/s", spread: func(row *Row) *Spread {
		if row.Connections == nil {
			return nil
		}
		return &row.Connections.Speed
	}},
	{
		// Rows with a rate are left out, because their time per packet is only its inverse.
		key: "ns_per_packet", unit: "ns", own: "empty_ns_per_packet", lowerIsBetter: true, spread: func(row *Row) *Spread {
			if row.Mpps != nil {
				return nil
			}
			return row.NsPerPacket
		},
	},
}

// usualBases are the base rows, the best first: peers that are similar to culvert. Scenario workers has no peer, so its base is
// culvert without workers.
var usualBases = []string{"redirect", "direct", "bridge", "reference", "culvert-cold@workers0"}

// baseFor is the name of the base row for a row: one that has the figure and is valid in both reports, preferably in the same
// variant. It is empty if there is none.
func (c *comparer) baseFor(m measure, row string) string {
	names := usualBases
	if c.base != "" {
		names = []string{c.base}
	}
	for _, name := range names {
		like := name
		if !strings.Contains(name, "@") {
			like = variantOf(name, row)
		}
		for _, base := range []string{like, name} {
			old, now := c.before.row(base), c.after.row(base)
			if old != nil && now != nil && old.Valid && now.Valid && m.spread(old) != nil && m.spread(now) != nil {
				return base
			}
		}
	}
	return ""
}

// measured compares one figure of a row.
func (c *comparer) measured(m measure, old, now *Row) {
	if m.own != "" {
		if len(old.Samples[m.own]) > 0 && len(now.Samples[m.own]) > 0 {
			c.rounds(m, old, now, m.unit+" by empty program",
				PairedRatios(old.Samples[m.key], old.Samples[m.own]), PairedRatios(now.Samples[m.key], now.Samples[m.own]))
			return
		}
		c.absolute(m, old, now)
		return
	}
	base := c.baseFor(m, old.Name)
	switch base {
	case "":
		c.absolute(m, old, now)
	case old.Name:
		c.asBase(m, old, now)
	default:
		_, variant := split(old.Name)
		short := shortIn(base, variant)
		oldBase, nowBase := c.before.row(base), c.after.row(base)
		if paired(m, old, oldBase) && paired(m, now, nowBase) {
			c.rounds(m, old, now, m.unit+" x "+short,
				PairedRatios(old.Samples[m.key], oldBase.Samples[m.key]), PairedRatios(now.Samples[m.key], nowBase.Samples[m.key]))
			return
		}
		c.ranges(m, old, now, m.unit+" x "+short, quotient(*m.spread(old), *m.spread(oldBase)),
			quotient(*m.spread(now), *m.spread(nowBase)))
	}
}

// paired tells whether both rows have samples of the same rounds.
func paired(m measure, a, b *Row) bool {
	return len(a.Samples[m.key]) > 0 && len(a.Samples[m.key]) == len(b.Samples[m.key])
}

// rounds compares figures by their single rounds.
func (c *comparer) rounds(m measure, old, now *Row, figure string, a, b []float64) {
	change := changeOf(old.Name, figure, NewSpread(a).Median, NewSpread(b).Median)
	change.judge(a, b, m.lowerIsBetter)
	c.add(change)
}

// ranges compares figures without single rounds. A change is significant if their ranges do not overlap.
func (c *comparer) ranges(m measure, old, _ *Row, figure string, a, b Spread) {
	change := changeOf(old.Name, figure, a.Median, b.Median)
	change.Note = "by smallest and largest value: no single rounds that belong together in both reports"
	change.decide(a.Max < b.Min || b.Max < a.Min, m.lowerIsBetter)
	c.add(change)
}

// quotient is the range of all ratios of values in a and b.
func quotient(a, b Spread) Spread {
	if b.Min <= 0 {
		return Spread{}
	}
	return Spread{Median: a.Median / b.Median, Min: a.Min / b.Max, Max: a.Max / b.Min}
}

// absolute compares figures without a base. This makes sense only on the same machine at the same speed.
func (c *comparer) absolute(m measure, old, now *Row) {
	a, b := m.spread(old), m.spread(now)
	if c.otherMachine {
		change := changeOf(old.Name, m.unit, a.Median, b.Median)
		change.Verdict, change.Note = Undecided, "another machine, and no common row to compare with"
		c.add(change)
		return
	}
	c.warn("no common row to compare %s with: %s of both reports as they are, the speed of the machine is in them",
		old.Name, m.unit)
	if x, y := old.Samples[m.key], now.Samples[m.key]; len(x) > 0 && len(y) > 0 {
		c.rounds(m, old, now, m.unit, x, y)
		return
	}
	c.ranges(m, old, now, m.unit, *a, *b)
}

// asBase adds the figure of a base row, which shows how fast the machine was.
func (c *comparer) asBase(m measure, old, now *Row) {
	change := changeOf(old.Name, m.unit, m.spread(old).Median, m.spread(now).Median)
	change.Verdict = Base
	if p := change.Percent; p != nil && (*p > 100*otherSpeed || *p < -100*otherSpeed) {
		c.warn("%s went from %.3f to %.3f %s: the machine ran at another speed, or %[1]s itself changed; ratios may differ "+
			"for that alone", old.Name, *change.Old, *change.New, m.unit)
	}
	c.add(change)
}

// SlowerThan lists the rows that became worse by more than the given percentage, and the invalid rows, which cannot be compared.
func (c *Comparison) SlowerThan(percent float64) []string {
	var names []string
	for _, change := range c.Changes {
		slow := change.Verdict == Slower && max(*change.Percent, -*change.Percent) > percent
		name := fmt.Sprintf("%s (%s)", change.Row, change.Verdict)
		if (slow || change.Verdict == Invalid) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
