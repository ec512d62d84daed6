// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"culvert/internal/cluster"
	"culvert/internal/show/usage"
)

// Steps says how a revision comes to nodes.
type Steps struct {
	// Canary is how many nodes are first.
	Canary int
	// Step is how many nodes each further step has, as "25%" of all or "10".
	Step string
	// Wait is how long the nodes of a step have to be in good health, without a break, before the next one.
	Wait time.Duration
	// Within is how long they have for running the revision.
	Within time.Duration
}

// Check refuses steps that are none.
func (s Steps) Check() error {
	switch {
	case s.Canary < 0:
		return usage.Errorf("--canary %d: write 0 for none, or a number of nodes", s.Canary)
	case s.Wait < 0 || s.Within <= 0:
		return usage.Errorf("--wait and --within are times above 0, as 10s")
	}
	_, err := s.size(1)
	return err
}

// size returns how many of n nodes a step has.
func (s Steps) size(n int) (int, error) {
	text, percent := strings.CutSuffix(s.Step, "%")
	number, err := strconv.Atoi(text)
	switch {
	case err != nil || number < 1 || percent && number > 100:
		return 0, usage.Errorf("--step %s: write how many nodes a step has, as 10, or a share of them, as 25%%", s.Step)
	case percent:
		return max((n*number+99)/100, 1), nil
	}
	return number, nil
}

// plan returns the nodes of each step. Nodes with the same roles are spread over the steps, so that the first ones have some of each.
func (s Steps) plan(names []string, states States) ([][]string, error) {
	size, err := s.size(len(names))
	if err != nil {
		return nil, err
	}
	names = spread(names, states)
	var plan [][]string
	if s.Canary > 0 && len(names) > 0 {
		n := min(s.Canary, len(names))
		plan, names = append(plan, names[:n]), names[n:]
	}
	return slices.AppendSeq(plan, slices.Chunk(names, size)), nil
}

// spread returns names so that nodes with the same roles take turns with others.
func spread(names []string, states States) (all []string) {
	groups, order := make(map[string][]string), []string{}
	for _, name := range names {
		roles := rolesText(states[name])
		if groups[roles] == nil {
			order = append(order, roles)
		}
		groups[roles] = append(groups[roles], name)
	}
	slices.Sort(order)
	for len(all) < len(names) {
		for _, roles := range order {
			if g := groups[roles]; len(g) > 0 {
				all, groups[roles] = append(all, g[0]), g[1:]
			}
		}
	}
	return all
}

// rolesText returns the roles of a node, the same text for the same roles.
func rolesText(s cluster.State) string {
	roles := slices.Clone(s.Roles)
	slices.Sort(roles)
	return strings.Join(roles, ",")
}

// some returns the first names of many, and how many there are besides.
func some(names []string) string {
	const most = 8
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d others", strings.Join(names[:most], ", "), len(names)-most)
}
