// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/lipgloss"

	"culvert/internal/cluster"
	"culvert/internal/show/screen"
)

// TestWatch looks at the screen of a fleet of twenty nodes on a terminal of twelve lines: what differs stands above the nodes, which scroll.
func TestWatch(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	const nodes, width, height = 20, 100, 12
	for n := range nodes {
		b.add(fmt.Sprintf("lb%02d:lb", n))
	}
	if err := b.apply(doc("one")); err != nil {
		t.Fatal(err)
	}
	now, err := b.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v := b.view(now, func() (*Status, error) { return b.Status(t.Context()) })
	s := screen.New(lipgloss.NewRenderer(&bytes.Buffer{}), time.Second, v)
	s.Resize(width, height)
	look := func() {
		t.Helper()
		s.Sampled(v.Look())
	}
	// at returns the number of the line that begins with a text, -1 for none.
	at := func(begin string) int {
		return slices.IndexFunc(strings.Split(s.View(), "\n"), func(line string) bool { return strings.HasPrefix(line, begin) })
	}
	order := func(what string, begins ...string) {
		t.Helper()
		for n, begin := range begins {
			if at(begin) < 0 || n > 0 && at(begin) <= at(begins[n-1]) {
				t.Errorf("%s: %q is not below %q:\n%s", what, begin, begins[max(n-1, 0)], s.View())
			}
		}
		if lines := strings.Count(s.View(), "\n") + 1; lines != height {
			t.Errorf("%s: %d lines of %d", what, lines, height)
		}
	}
	order("at first", "cluster test: 20 nodes ", "NODE", "lb00", "lb07", "q quit")
	if !strings.Contains(s.View(), "revision 1\n") || at("lb08") >= 0 || at("!") >= 0 {
		t.Errorf("at first:\n%s", s.View())
	}
	b.with("lb03", func(n *fakeNode) { n.Health, n.Problems = cluster.HealthBad, []string{"no backend is up"} })
	b.lose("lb19")
	order("before the next look", "cluster test: 20 nodes ", "lb00", "lb07")
	look()
	order("after it", "cluster test: 19 nodes, 1 away ", "! not there: lb19", "NODE", "lb00", "lb05", "q quit")
	if at("! lb03") < 0 || !strings.Contains(s.View(), "no backend is up") {
		t.Errorf("a node in bad health:\n%s", s.View())
	}
	for range nodes {
		s.Press("down")
	}
	order("at the end", "cluster test: 19 nodes", "! not there: lb19", "NODE", "lb13", "lb18", "q quit")
	s.Press("p")
	b.with("lb18", func(n *fakeNode) { n.Maintain = cluster.MaintainSafe })
	look()
	if strings.Contains(s.View(), "good, maintenance (safe)") || !strings.Contains(s.View(), "PAUSED") {
		t.Errorf("paused:\n%s", s.View())
	}
	s.Press("p")
	for n := range nodes - 1 {
		b.with(fmt.Sprintf("lb%02d", n), func(n *fakeNode) { n.Health, n.Problems = cluster.HealthBad, []string{"no backend is up"} })
	}
	look()
	for range nodes {
		s.Press("down")
	}
	if !strings.Contains(s.View(), "bad, maintenance (safe)") {
		t.Errorf("a node in maintenance:\n%s", s.View())
	}
	if more := at("! "); at("NODE") > height/2 || more < 0 || !strings.Contains(s.View(), " more: see 'culvert fleet status'") {
		t.Errorf("what differs leaves no room for nodes:\n%s", s.View())
	}
	s.Sampled(nil, errors.New("etcd does not answer"))
	order("without etcd", "cluster test: 19 nodes", "NODE", "lb18", "etcd does not answer")
	if !s.Press("q") {
		t.Error("q does not quit")
	}
}

// TestWatchLines has no terminal: it prints what status does, as often as is asked for.
func TestWatchLines(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a:lb", "b:lb")
	var out bytes.Buffer
	if err := b.Watch(t.Context(), time.Millisecond, 3, &out); err != nil || strings.Count(out.String(), "cluster test: 2 nodes, no revision") != 3 {
		t.Errorf("error %v\n%s", err, &out)
	}
}
