// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterstage"
)

// Overlay adds to the plan of a configuration what an urgent change makes of the file's own sets, so that they come into force together,
// and returns what undoes that: nil if the change is not about a set with entries of the file.
func Overlay(q Request, p *filterstage.Plan) *Undo {
	var entries SetEntries
	add := false
	switch q := q.(type) {
	case *SetAdd:
		entries, add = q.SetEntries, true
	case *SetDel:
		entries = SetEntries{Set: q.Set, Entries: q.Entries}
	default:
		return nil
	}
	before, after, known := p.Overlay(entries.Set, func(m *filterstage.Members) {
		c, err := entries.read(m.Endpoints != nil)
		switch {
		case err != nil: // it is of another type: carrying it out says so
		case c.Prefixes != nil && add:
			m.Prefixes.Add(c.Prefixes)
		case c.Prefixes != nil:
			m.Prefixes.Remove(c.Prefixes)
		case add:
			m.Endpoints.Add(c.Endpoints)
		default:
			m.Endpoints.Remove(c.Endpoints)
		}
	})
	if !known {
		return nil
	}
	return &Undo{Sets: []SetWas{{
		Name: entries.Set, Endpoints: after.Endpoints != nil,
		Added: entriesOf(filterplane.Members(after.Without(before))), Removed: entriesOf(filterplane.Members(before.Without(after))),
	}}}
}
