// SPDX-License-Identifier: Apache-2.0

package stage

import "fmt"

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
