// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"culvert/internal/testbed"
)

// The dashboards in dist/ are those that this program writes, and there are no others.
func TestDashboardsAreCurrent(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(out, "*"))
	if err != nil || len(files) != len(boards) {
		t.Errorf("%d files in %s, %v, want %d", len(files), out, err, len(boards))
	}
	for _, b := range boards {
		want, err := b.render()
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(out, b.name+".json"))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s.json is not what its sources say, %v: run 'go generate ./internal/gendashboards'", b.name, err)
		}
	}
}

// Panels have IDs of their own and lie beside each other in Grafana's grid, each with a query.
func TestPanels(t *testing.T) {
	for _, b := range boards {
		text, err := b.render()
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			UID    string
			Panels []struct {
				ID          int
				Type, Title string
				GridPos     struct{ X, Y, W, H int }
				Targets     []struct{ RefID, Expr string }
			}
		}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		ids, taken := make(map[int]bool), make(map[[2]int]string)
		for _, p := range d.Panels {
			if ids[p.ID] {
				t.Errorf("%s: two panels have the ID %d", b.name, p.ID)
			}
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x >= width {
						t.Fatalf("%s: panel %s is over %q, or outside", b.name, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			if p.Title == "" || p.Type != "row" && len(p.Targets) == 0 {
				t.Errorf("%s: panel %d has no title or no query", b.name, p.ID)
			}
		}
	}
}

// Each metric that a dashboard asks for is in docs/metrics.md, or is recorded by a rule.
func TestDashboardsAskForWhatThereIs(t *testing.T) {
	known, err := testbed.DocumentedMetrics("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile("../../dist/prometheus/recording.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	queries, err := testbed.DashboardQueries(out, "5m")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range queries {
		for _, name := range testbed.MetricNames(q.Expr) {
			_, documented := known[name]
			recorded := regexp.MustCompile(`(?m)^ *- record: ` + name + `$`).Match(rules)
			if !documented && !recorded && name != "up" && !strings.HasPrefix(name, "process_") {
				t.Errorf("%s, %s asks for %s", q.Dashboard, q.Panel, name)
			}
		}
	}
}
