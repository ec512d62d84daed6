// SPDX-License-Identifier: Apache-2.0

package scionjudge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"culvert/internal/scion/scionpkt"
)

// Tally counts packets of one class.
type Tally struct {
	// ByReference is indexed by Kind, ByFast by Verdict.
	ByReference [3]int
	ByFast      [5]int
	// Both counts packets that both have forwarded.
	Both int
}

func (c *Tally) add(v Verdict, k Kind) {
	c.ByReference[k]++
	if int(v) < len(c.ByFast) {
		c.ByFast[v]++
	}
	if k == Forwarded && (v == Tx || v == Redirect) {
		c.Both++
	}
}

// Stats counts what a trial has seen.
type Stats struct {
	// Valid is indexed by direction and counts undamaged packets.
	Valid [scionpkt.NumDirections]Tally
	// Damaged is indexed by what was done to the packet.
	Damaged map[string]*Tally
}

func (s *Stats) count(p *scionpkt.Spec, damage string, v Verdict, k Kind) {
	if damage == "" {
		s.Valid[p.Direction].add(v, k)
		return
	}
	if s.Damaged == nil {
		s.Damaged = map[string]*Tally{}
	}
	if s.Damaged[damage] == nil {
		s.Damaged[damage] = &Tally{}
	}
	s.Damaged[damage].add(v, k)
}

// Add adds the counts of another trial.
func (s *Stats) Add(other *Stats) {
	for d := range other.Valid {
		s.Valid[d].sum(&other.Valid[d])
	}
	if s.Damaged == nil {
		s.Damaged = map[string]*Tally{}
	}
	for name, c := range other.Damaged {
		if s.Damaged[name] == nil {
			s.Damaged[name] = &Tally{}
		}
		s.Damaged[name].sum(c)
	}
}

func (c *Tally) sum(other *Tally) {
	for i, v := range other.ByReference {
		c.ByReference[i] += v
	}
	for i, v := range other.ByFast {
		c.ByFast[i] += v
	}
	c.Both += other.Both
}

// String is a table of the counts.
func (s *Stats) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-38s %28s   %28s %9s\n", "", "reference", "fast path", "")
	fmt.Fprintf(&b, "%-38s %9s %9s %8s   %9s %9s %8s %9s\n", "packets",
		"forwarded", "answered", "dropped", "forwarded", "passed", "dropped", "by both")
	line := func(name string, c *Tally) {
		fmt.Fprintf(&b, "%-38s %9d %9d %8d   %9d %9d %8d %9d\n", name,
			c.ByReference[Forwarded], c.ByReference[Answered], c.ByReference[Dropped],
			c.ByFast[Tx]+c.ByFast[Redirect], c.ByFast[Pass], c.ByFast[Drop], c.Both)
	}
	for d := range scionpkt.NumDirections {
		line(d.String(), &s.Valid[d])
	}
	for _, name := range slices.Sorted(maps.Keys(s.Damaged)) {
		line(name, s.Damaged[name])
	}
	return b.String()
}
