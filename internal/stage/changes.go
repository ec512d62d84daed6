// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"fmt"
	"slices"
)

// Changes are lines for what differs between two plans, as "rule dns: rate 1kpps → 2kpps".
type Changes []string

// Add adds a line.
func (c *Changes) Add(format string, args ...any) { *c = append(*c, fmt.Sprintf(format, args...)) }

// Value adds a line if the text of a value differs. An empty text is none.
func (c *Changes) Value(what string, was, is any) {
	before, now := fmt.Sprint(was), fmt.Sprint(is)
	if before == now {
		return
	}
	for _, text := range []*string{&before, &now} {
		if *text == "" || *text == "[]" {
			*text = "none"
		}
	}
	c.Add("%s %s → %s", what, before, now)
}

// Hidden adds a line if a value differs that is not to be shown.
func (c *Changes) Hidden(what string, was, is any) {
	if was != is {
		c.Add("%s changed", what)
	}
}

// ByHand is the note on lines about what was changed by hand and goes back to the file.
const ByHand = " (takes back a change by hand)"

// Others adds the lines of really that are not there yet, each with a note. These are what changes on a data plane and does not
// differ between files.
func (c *Changes) Others(really Changes, note string) {
	for _, line := range really {
		if !slices.Contains(*c, line) {
			*c = append(*c, line+note)
		}
	}
}

// Named adds lines for things with names: first for those that are new or for which changes adds lines, then for those that are
// gone. what stands in front of the names.
func Named[T any, N comparable](c *Changes, what string, was, is []T, name func(T) N, changes func(c *Changes, name string, was, is T)) {
	find := func(all []T, n N) int { return slices.IndexFunc(all, func(t T) bool { return name(t) == n }) }
	for _, t := range is {
		text := fmt.Sprintf("%s %v", what, name(t))
		if at := find(was, name(t)); at >= 0 {
			changes(c, text, was[at], t)
		} else {
			c.Add("%s added", text)
		}
	}
	for _, t := range was {
		if find(is, name(t)) < 0 {
			c.Add("%s %v removed", what, name(t))
		}
	}
}
