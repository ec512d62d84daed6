// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// sources returns a line for each source of backends whose last answer is not in force, with the nodes that say so and why the first one does.
func (s *Status) sources() (lines []string) {
	type trouble struct{ source, state string }
	nodes, why := make(map[trouble][]string), make(map[trouble]string)
	for _, n := range s.Nodes {
		for source, text := range n.Sources {
			state, because, _ := strings.Cut(text, ": ")
			t := trouble{source, state}
			if nodes[t] == nil {
				why[t] = because
			}
			nodes[t] = append(nodes[t], n.Node)
		}
	}
	for _, t := range slices.SortedFunc(maps.Keys(nodes), func(a, b trouble) int { return strings.Compare(a.source+a.state, b.source+b.state) }) {
		line := fmt.Sprintf("source %s is %s on %s", t.source, t.state, some(nodes[t]))
		if why[t] != "" {
			line += ": " + why[t]
		}
		lines = append(lines, line)
	}
	return lines
}
