// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// DocumentedMetric is a line of the tables of docs/metrics.md.
type DocumentedMetric struct {
	Name, Type string
	Labels     []string // sorted
	Meaning    string
}

// DocumentedMetrics returns the metrics that the page at path explains, by their names.
func DocumentedMetrics(path string) (map[string]DocumentedMetric, error) {
	page, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all := make(map[string]DocumentedMetric)
	row := regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| (counter|gauge) \\| ([a-z_, ]*)\\| *(.*?) *\\|$")
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		d := DocumentedMetric{Name: m[1], Type: m[2], Labels: []string{}, Meaning: m[4]}
		if labels := strings.TrimSpace(m[3]); labels != "" {
			d.Labels = strings.Split(labels, ", ")
		}
		if _, twice := all[d.Name]; twice {
			return nil, fmt.Errorf("%s has %s twice", path, d.Name)
		}
		if !slices.IsSorted(d.Labels) || d.Meaning == "" {
			return nil, fmt.Errorf("%s: the labels of %s are not sorted, or there is no meaning", path, d.Name)
		}
		all[d.Name] = d
	}
	return all, nil
}

// DashboardQuery is an expression of a dashboard, with values in the place of its variables.
type DashboardQuery struct{ Dashboard, Panel, Expr string }

// DashboardQueries returns the expressions of the dashboards in a directory. A rate is over the given time, as "5s". The values
// that a variable can have are a query too, for the metric and the label.
func DashboardQueries(dir, over string) (all []DashboardQuery, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("no dashboards in %s: %v", dir, err)
	}
	values := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	variable := regexp.MustCompile(`\$(\w+)`)
	for _, path := range paths {
		var d struct {
			Title      string
			Templating struct {
				List []struct {
					Name, Type, Definition string
				}
			}
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &d); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		known := []string{}
		add := func(panel, expr string) error {
			var unknown string
			expr = variable.ReplaceAllStringFunc(expr, func(v string) string {
				switch {
				case v == "$__rate_interval":
					return over
				case slices.Contains(known, v[1:]):
					return ".*"
				}
				unknown = v
				return v
			})
			if unknown != "" {
				return fmt.Errorf("%s: %s uses %s, which is no variable of the dashboard", path, panel, unknown)
			}
			all = append(all, DashboardQuery{d.Title, panel, expr})
			return nil
		}
		for _, v := range d.Templating.List {
			if v.Type == "query" {
				m := values.FindStringSubmatch(v.Definition)
				if m == nil {
					return nil, fmt.Errorf("%s: variable %s has the values %q", path, v.Name, v.Definition)
				}
				if err := add("variable "+v.Name, fmt.Sprintf(`count by (%s) (%s)`, m[2], m[1])); err != nil {
					return nil, err
				}
			}
			known = append(known, v.Name)
		}
		for _, p := range d.Panels {
			for _, t := range p.Targets {
				if err := add(p.Title, t.Expr); err != nil {
					return nil, err
				}
			}
		}
	}
	return all, nil
}

// MetricNames returns the names of the metrics and recorded series in an expression: of culvert, of the reference router, of
// the process, and up.
func MetricNames(expr string) []string {
	expr = regexp.MustCompile(`"[^"]*"`).ReplaceAllString(expr, `""`)
	expr = regexp.MustCompile(`\b(by|on|without|ignoring|group_left|group_right) *\([^)]*\)`).ReplaceAllString(expr, "")
	names := regexp.MustCompile(`\b((culvert|router|scion|promhttp|process|instance|cluster)[_:][a-zA-Z0-9_:]*|up)\b`).FindAllString(expr, -1)
	slices.Sort(names)
	return slices.Compact(names)
}
