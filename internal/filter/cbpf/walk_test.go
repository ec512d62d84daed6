// SPDX-License-Identifier: Apache-2.0

package cbpf

import (
	"fmt"
	"testing"
)

// A way covers another one only if whatever it asks for is given on the other one: the end, values, facts and loads.
func TestCovers(t *testing.T) {
	port := fact{left: "[+12:2]", op: fmt.Sprint(jmpJEQ), right: "#2048", holds: true}
	whole := func() way {
		return way{
			at: -1, values: [][]string{{"[+26:4]"}, {"[+36:2]"}}, facts: []fact{port}, loads: []place{{first: 12, end: 14}, {first: 26, end: 38}},
		}
	}
	short := func() way {
		s := whole()
		s.at, s.cut = 3, place{first: 40, end: 44}
		return s
	}
	for _, c := range []struct {
		name string
		one  func() way
		// change changes the way that is to cover, or the one that is to be covered.
		change func(by, e *way)
		want   bool
	}{
		{"the same match", whole, func(_, _ *way) {}, true},
		{"the same short frame", short, func(_, _ *way) {}, true},
		{"a match by a short frame", whole, func(by, _ *way) { *by = short() }, false},
		{"a short frame by a match", short, func(by, _ *way) { *by = whole() }, false},
		{"ends at another load", short, func(by, _ *way) { by.at = 5 }, true},
		{"lacks bytes that end sooner", short, func(_, e *way) { e.cut.end = 43 }, true},
		{"lacks bytes that begin later", short, func(_, e *way) { e.cut.first = 41 }, false},
		{"lacks bytes that end later", short, func(_, e *way) { e.cut.end = 45 }, false},
		{"lacks bytes behind another header", short, func(_, e *way) { e.cut.base = "4*[14]" }, false},
		{"another value", whole, func(_, e *way) { e.values[1] = []string{"[+34:2]"} }, false},
		{"no value", whole, func(_, e *way) { e.values[0] = nil }, false},
		{"a value among several", whole, func(_, e *way) { e.values[1] = []string{"[+36:2]", "[+34:2]"} }, true},
		{"the last of several values", whole, func(by, _ *way) { by.values[1] = []string{"[+34:2]", "[+36:2]"} }, true},
		{"not the last of several values", whole, func(by, _ *way) { by.values[1] = []string{"[+36:2]", "[+34:2]"} }, false},
		{"a value that is not asked for", whole, func(by, _ *way) { by.values[0] = nil }, true},
		{"a fact fewer", whole, func(_, e *way) { e.facts = nil }, false},
		{"the contrary", whole, func(_, e *way) { e.facts = []fact{{port.left, port.op, port.right, false}} }, false},
		{"a fact more", whole, func(by, _ *way) { by.facts = nil }, true},
		{"a fact that follows from another number", whole, func(by, _ *way) { by.facts = []fact{{port.left, port.op, "#2054", false}} }, true},
		{"a load fewer", whole, func(_, e *way) { e.loads = e.loads[:1] }, false},
		{"a load more", whole, func(by, _ *way) { by.loads = by.loads[:1] }, true},
		{"a load that begins later", whole, func(_, e *way) { e.loads[1].first++ }, true},
		{"a load that begins sooner", whole, func(_, e *way) { e.loads[1].first-- }, false},
		{"a load that ends sooner", whole, func(_, e *way) { e.loads[1].end-- }, false},
		{"a load that ends later", whole, func(_, e *way) { e.loads[1].end++ }, true},
	} {
		by, e := c.one(), c.one()
		if c.change(&by, &e); by.covers(&e) != c.want {
			t.Errorf("%s: covers is %t", c.name, !c.want)
		}
	}
}
