// SPDX-License-Identifier: Apache-2.0

package node

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"culvert/internal/cluster"
	"culvert/internal/cluster/agent"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/lbview"
	"culvert/internal/lb/sourcestate"
)

// TestStateOfNode reports the stages that the node's configuration turns on and no others, and with VIPs the ID of the seed.
func TestStateOfNode(t *testing.T) {
	b := newUrgentBed(t)
	report := func() (s cluster.State) {
		p := &process{cluster: b.member, states: new(stageStates)}
		p.states.succeed(b.up, nil)
		p.now.Store(b.up)
		(&clusterPlane{process: p}).State(&s)
		return s
	}
	s := report()
	if got := slices.Sorted(maps.Keys(s.Stages)); !slices.Equal(got, []string{"filter", "lb"}) || s.Seed != lbplane.OptionsOf(b.up.inst).SeedID() || s.RingSize == 0 {
		t.Errorf("with both stages: %+v", s)
	}
	filter, _, _ := strings.Cut(urgentFile, "[lb]\n")
	b.bring(filter)
	if s := report(); len(s.Stages) != 1 || s.Stages["filter"] == "" || s.Seed != "" {
		t.Errorf("with the filter alone: %+v", s)
	}
}

// TestStateOfUrgentFilter reports the filter of a node whose configuration has none, while an urgent rule is in force there.
func TestStateOfUrgentFilter(t *testing.T) {
	b := newUrgentBed(t)
	top, _, _ := strings.Cut(urgentFile, "[[filter.set]]")
	_, balancer, _ := strings.Cut(urgentFile, "[lb]")
	b.bring(top + "[lb]" + balancer)
	stages := func() []string {
		var s cluster.State
		p := &process{cluster: b.member, states: new(stageStates)}
		p.states.succeed(b.up, nil)
		p.now.Store(b.up)
		(&clusterPlane{process: p}).State(&s)
		return slices.Sorted(maps.Keys(s.Stages))
	}
	for _, step := range []struct {
		what    string
		changes []agent.Held
		want    []string
	}{{"before", nil, []string{"lb"}}, {"with a rule", []agent.Held{each[0].held}, []string{"filter", "lb"}}, {"after it", nil, []string{"lb"}}} {
		if failed := b.keeper.Bring(t.Context(), b.up.inst, step.changes); len(failed) > 0 {
			t.Fatalf("%s: %v", step.what, failed)
		}
		if got := stages(); !slices.Equal(got, step.want) {
			t.Errorf("%s: stages %v, want %v", step.what, got, step.want)
		}
	}
}

// TestStateOfSources reports the sources of backends whose last answer is not in force.
func TestStateOfSources(t *testing.T) {
	var s cluster.State
	addBalancer(&s, &lbview.Report{VIPs: []lbview.VIP{{Service: "203.0.113.80:80/tcp", Sources: []sourcestate.Source{
		{Name: "web", State: sourcestate.Failing, Why: "no such host"}, {Name: "good", State: sourcestate.OK},
	}}}}, func(string, ...any) {})
	if want := map[string]string{"web of VIP 203.0.113.80:80/tcp": "failing: no such host"}; !maps.Equal(s.Sources, want) {
		t.Errorf("%v, want %v", s.Sources, want)
	}
}
