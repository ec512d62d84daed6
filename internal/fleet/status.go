// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"culvert/internal/cluster"
	"culvert/internal/show/text"
)

// Status is a fleet at one moment.
type Status struct {
	Cluster string          `json:"cluster"`
	Current cluster.Current `json:"current"`
	Nodes   []cluster.State `json:"nodes"`
	// Away are the nodes that earlier rollouts have met and that are not there.
	Away    []string     `json:"away,omitempty"`
	Urgents []UrgentLeft `json:"urgents,omitempty"`
	// Differs says in a line each what is not as it is meant to be, or not the same on nodes of the same roles.
	Differs []string `json:"differs"`

	own   map[string]bool         // the nodes with a document of their own
	twins map[string]cluster.Twin // other processes of nodes' names
	// lost tells that what nodes are to run is not known, since the key current is damaged.
	lost bool
	// stopped tells that the operator of the rollout has died: nobody holds the lock.
	stopped bool
}

// Status looks at all nodes.
func (f *Fleet) Status(ctx context.Context) (*Status, error) {
	states, err := f.States(ctx)
	if err != nil {
		return nil, err
	}
	return f.status(ctx, states)
}

// status adds what else there is to the states of nodes.
func (f *Fleet) status(ctx context.Context, states States) (*Status, error) {
	s := &Status{Cluster: f.name, Nodes: []cluster.State{}, Differs: []string{}}
	var err error
	if s.Current, err = f.Current(ctx); isDamaged(err) {
		s.lost, s.Differs = true, append(s.Differs, damagedCurrent)
	} else if err != nil {
		return nil, err
	}
	if s.Current.Rollout != nil {
		if s.stopped, err = f.rolloutStopped(ctx); err != nil {
			return nil, err
		}
	}
	if err := f.addDamaged(ctx, s); err != nil {
		return nil, err
	}
	if s.Urgents, err = f.urgents(ctx, states); err != nil {
		return nil, err
	}
	for _, name := range states.Names() {
		s.Nodes = append(s.Nodes, states[name])
	}
	var unknown bool
	if s.Away, unknown = f.away(ctx, states); unknown {
		s.Differs = append(s.Differs, damagedKnown)
	}
	if err := f.addDamagedLock(ctx, &s.Differs); err != nil {
		return nil, err
	}
	if err := f.addDamagedMaintains(ctx, &s.Differs); err != nil {
		return nil, err
	}
	if s.twins, err = f.twins(ctx, states); err != nil {
		return nil, err
	}
	if s.own, err = f.owning(ctx, s.Current); err != nil {
		return nil, err
	}
	s.Differs = append(s.Differs, s.differs()...)
	return s, nil
}

// addDamaged adds what of the revisions that nodes are to run is not as it was written.
func (f *Fleet) addDamaged(ctx context.Context, s *Status) error {
	for _, n := range runs(s.Current) {
		lines, err := f.damagedRevision(ctx, n)
		if err != nil {
			return err
		}
		for _, l := range lines {
			s.Differs = append(s.Differs, fmt.Sprintf("revision %d is damaged, and nodes that do not run it yet refuse it: %s", n, l))
		}
	}
	return nil
}

// runs returns the revisions that nodes are to run.
func runs(c cluster.Current) []int64 {
	if c.Rollout != nil {
		return []int64{c.Revision, c.Rollout.To}
	}
	return []int64{c.Revision}
}

// owning returns the nodes that have a document of their own, in a revision that nodes are to run.
func (f *Fleet) owning(ctx context.Context, c cluster.Current) (map[string]bool, error) {
	own := make(map[string]bool)
	for _, n := range runs(c) {
		var r cluster.Revision
		if _, err := f.get(ctx, f.keys.Revision(n), &r); err != nil && !isDamaged(err) {
			return nil, err
		}
		for text := range r.Documents {
			if s, err := cluster.ParseScope(text); err == nil && s.Kind == cluster.ScopeNode {
				own[s.Name] = true
			}
		}
	}
	return own, nil
}

// differs compares what nodes report with what is meant, and nodes of the same roles with each other.
func (s *Status) differs() (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if r := s.Current.Rollout; r != nil {
		if s.stopped {
			add("%s", stoppedText(r))
		} else {
			add("a rollout of revision %d by %s is at step %d of %d", r.To, r.By, r.Step, len(r.Plan))
		}
	}
	if len(s.Away) > 0 {
		add("not there: %s", some(s.Away))
	}
	for _, n := range s.Nodes {
		want := s.Current.Of(n.Node)
		if twin, is := s.twins[n.Node]; is {
			add("%s is on host %s, and another process on host %s has the name %[1]s too, and follows no revisions: give it another name", n.Node, orDash(n.Host), orDash(twin.Host))
		}
		switch {
		case s.lost:
		case n.Refused != "":
			add("%s runs revision %d and refuses %d: %s", n.Node, n.Revision, n.Wanted, n.Refused)
		case n.Revision != want:
			add("%s runs revision %d, not yet %d", n.Node, n.Revision, want)
		}
		if n.Health != cluster.HealthGood {
			add("%s is in bad health: %s", n.Node, problems(n))
		}
		if n.Maintain != "" {
			add("%s is in maintenance (%s): 'culvert fleet resume %[1]s' ends it", n.Node, n.Maintain)
		}
		for _, id := range slices.Sorted(maps.Keys(n.UrgentFailed)) {
			add("%s could not carry out urgent change %s: %s", n.Node, id, n.UrgentFailed[id])
		}
		for _, u := range s.Urgents {
			if u.Scope.Holds(n.Node, n.Roles) && !slices.Contains(n.Urgent, u.ID) && !slices.Contains(n.UrgentOver, u.ID) &&
				!slices.Contains(n.UrgentUnconcerned, u.ID) && n.UrgentFailed[u.ID] == "" && n.More == 0 {
				add("%s does not have urgent change %s yet", n.Node, u.ID)
			}
		}
	}
	lines = append(lines, s.unequal("version", func(n cluster.State) string { return n.Version }, false)...)
	lines = append(lines, s.unequal("documents", func(n cluster.State) string {
		if len(n.Roles) == 0 || s.own[n.Node] || n.Revision != s.Current.Of(n.Node) {
			return "" // it has a document of its own, or has been listed
		}
		return n.Digest
	}, true)...)
	lines = append(lines, s.unequalRings()...)
	lines = append(lines, s.unequalAddresses()...)
	lines = append(lines, s.sources()...)
	return append(lines, s.unequalBackends()...)
}

// unequal tells whether nodes differ in something that is to be the same, among those of the same roles if sameRoles is set. A node
// with an empty value does not count.
func (s *Status) unequal(what string, of func(cluster.State) string, sameRoles bool) (lines []string) {
	groups := make(map[string]map[string][]string)
	for _, n := range s.Nodes {
		value, group := of(n), ""
		if sameRoles {
			group = rolesText(n)
		}
		if value == "" {
			continue
		}
		if groups[group] == nil {
			groups[group] = make(map[string][]string)
		}
		groups[group][value] = append(groups[group][value], n.Node)
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		if len(groups[group]) < 2 {
			continue
		}
		var parts []string
		for _, value := range slices.Sorted(maps.Keys(groups[group])) {
			parts = append(parts, fmt.Sprintf("%s on %s", value, some(groups[group][value])))
		}
		of := ""
		if group != "" {
			of = " of " + group
		}
		lines = append(lines, fmt.Sprintf("%s%s: %s", what, of, strings.Join(parts, "; ")))
	}
	return lines
}

// unequalAddresses returns a line for each address that some of the nodes announce that could: those that announce something, and are in no
// maintenance.
func (s *Status) unequalAddresses() (lines []string) {
	by := make(map[string][]string)
	able := make(map[string][]string) // by roles
	for _, n := range s.Nodes {
		for _, a := range n.Announced {
			by[a] = append(by[a], n.Node)
		}
		if n.Maintain == "" && n.More == 0 {
			able[rolesText(n)] = append(able[rolesText(n)], n.Node)
		}
	}
	roles := make(map[string]string)
	for _, n := range s.Nodes {
		roles[n.Node] = rolesText(n)
	}
	for _, a := range slices.Sorted(maps.Keys(by)) {
		var not []string
		for _, name := range able[roles[by[a][0]]] {
			if !slices.Contains(by[a], name) {
				not = append(not, name)
			}
		}
		if len(not) > 0 {
			lines = append(lines, fmt.Sprintf("%s is announced by %s, not by %s", a, some(by[a]), some(not)))
		}
	}
	return lines
}

// unequalBackends returns a line for each backend that is not as it should be, with the nodes that see it so.
func (s *Status) unequalBackends() (lines []string) {
	seen := make(map[[2]string][]string)
	for _, n := range s.Nodes {
		for backend, state := range n.Backends {
			key := [2]string{backend, state}
			seen[key] = append(seen[key], n.Node)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(seen), func(a, b [2]string) int { return strings.Compare(a[0]+a[1], b[0]+b[1]) }) {
		lines = append(lines, fmt.Sprintf("backend %s on %s: %s", key[0], some(seen[key]), key[1]))
	}
	return lines
}

// Lines returns it for people.
func (s *Status) Lines() []string {
	nodes := text.Count(uint64(len(s.Nodes)), "node")
	if len(s.Away) > 0 {
		nodes += fmt.Sprintf(" and %d away", len(s.Away))
	}
	head := fmt.Sprintf("cluster %s: %s, revision %d", s.Cluster, nodes, s.Current.Revision)
	if s.lost {
		head = fmt.Sprintf("cluster %s: %s, and nobody knows which revision they are to run", s.Cluster, nodes)
	} else if s.Current.Revision == 0 {
		head = fmt.Sprintf("cluster %s: %s, no revision: they run their own files", s.Cluster, nodes)
	}
	if len(s.Urgents) > 0 {
		head += ", " + text.Count(uint64(len(s.Urgents)), "urgent change")
	}
	lines := append([]string{head}, s.Table()...)
	if len(s.Differs) > 0 {
		lines = append(lines, "", "what differs:")
		for _, d := range s.Differs {
			lines = append(lines, "  "+d)
		}
	}
	return lines
}

// Table returns a line for the columns and one for each node.
func (s *Status) Table() []string {
	t := text.Table{Right: []bool{false, false, true, false, true, true, true}}
	t.Add("NODE", "ROLES", "REVISION", "HEALTH", "RX/s", "DROP/s", "URGENT", "ANNOUNCED", "STAGES")
	for _, n := range s.Nodes {
		health := n.Health
		if n.Maintain != "" {
			health += ", maintenance (" + n.Maintain + ")"
		}
		var rx, drop uint64
		for _, i := range n.Interfaces {
			rx, drop = rx+i.RX, drop+i.Drop
		}
		t.Add(n.Node, strings.Join(n.Roles, ","), fmt.Sprint(n.Revision), health, text.Grouped(rx), text.Grouped(drop), fmt.Sprint(len(n.Urgent)),
			orDash(strings.Join(n.Announced, " ")), orDash(stagesText(n)))
	}
	return t.Lines()
}

func stagesText(n cluster.State) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(n.Stages)) {
		state := n.Stages[name]
		if state == "" || state == "on" || state == "ready" {
			parts = append(parts, name)
			continue
		}
		parts = append(parts, name+" ("+state+")")
	}
	return strings.Join(parts, " ")
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
