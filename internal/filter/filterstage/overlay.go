// SPDX-License-Identifier: Apache-2.0

package filterstage

import (
	"maps"

	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterset"
)

// Overlay changes the members that the file has for a set, and returns those that it had before. known is false if the file has no
// members for it: then those that run stay when the plan comes into force.
func (p *Plan) Overlay(set string, change func(*Members)) (before, after Members, known bool) {
	has, ok := p.members[set]
	if !ok {
		return before, after, false
	}
	before = Members(has)
	if has.Prefixes != nil {
		after.Prefixes = new(filterset.Prefixes)
		after.Prefixes.Add(has.Prefixes)
	} else {
		after.Endpoints = maps.Clone(has.Endpoints)
	}
	change(&after)
	p.members[set] = filterplane.Members(after)
	return before, after, true
}
