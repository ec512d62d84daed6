// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"culvert/internal/cluster"
)

// ring is what decides which backend a new flow gets, beside the backends.
type ring struct {
	seed string
	size int
}

// unequalRings returns a line for the nodes of the same roles that announce the same address and have other rings: a flow that comes to another
// one of them gets another backend there.
func (s *Status) unequalRings() (lines []string) {
	by := make(map[string][]cluster.State) // by roles
	for _, n := range s.Nodes {
		if n.Seed != "" && len(n.Announced) > 0 {
			by[rolesText(n)] = append(by[rolesText(n)], n)
		}
	}
	for _, roles := range slices.Sorted(maps.Keys(by)) {
		on := make(map[ring][]string)
		var shared []string // addresses that nodes with other rings announce
		for _, n := range by[roles] {
			for _, other := range by[roles] {
				if ringOf(n) == ringOf(other) {
					continue
				}
				for _, a := range n.Announced {
					if slices.Contains(other.Announced, a) {
						shared = append(shared, a)
						on[ringOf(n)] = append(on[ringOf(n)], n.Node)
					}
				}
			}
		}
		if len(shared) > 0 {
			slices.Sort(shared)
			lines = append(lines, ringsLine(roles, on, slices.Compact(shared)))
		}
	}
	return lines
}

func ringOf(n cluster.State) ring { return ring{n.Seed, n.RingSize} }

func ringsLine(roles string, on map[ring][]string, addresses []string) string {
	sizes := make(map[int]bool)
	for r := range on {
		sizes[r.size] = true
	}
	var parts []string
	for r, nodes := range on {
		text := "seed " + r.seed
		if len(sizes) > 1 {
			text += fmt.Sprintf(", %d places", r.size)
		}
		slices.Sort(nodes)
		parts = append(parts, text+" on "+some(slices.Compact(nodes)))
	}
	slices.Sort(parts)
	of := ""
	if roles != "" {
		of = " of " + roles
	}
	return fmt.Sprintf("rings%s: %s: flows to %s that go to another node get another backend; 'culvert lb seed' prints one's seed for the others",
		of, strings.Join(parts, "; "), some(addresses))
}
