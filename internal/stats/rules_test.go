// SPDX-License-Identifier: Apache-2.0

package stats_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"culvert/internal/testbed"
)

const rulesDir = "../../dist/prometheus"

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRules has promtool check the rules and run their unit tests.
func TestRules(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", "recording.rules.yml", "alerts.rules.yml"}, {"test", "rules", "rules.test.yml"}} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = rulesDir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// Each alert is in a unit test and in docs/metrics.md, with a severity that the page explains. Its runbook names commands that there are.
func TestAlerts(t *testing.T) {
	alerts, tests := readText(t, filepath.Join(rulesDir, "alerts.rules.yml")), readText(t, filepath.Join(rulesDir, "rules.test.yml"))
	page, grammar := readText(t, "../../docs/metrics.md"), readText(t, "../../docs/development.md")
	severities := documentedSeverities(t, page)
	rules := regexp.MustCompile(`(?m)^      - alert: (\w+)$`).FindAllStringSubmatchIndex(alerts, -1)
	for n, at := range rules {
		name, end := alerts[at[2]:at[3]], len(alerts)
		if n+1 < len(rules) {
			end = rules[n+1][0]
		}
		if !strings.Contains(tests, fmt.Sprintf("alertname=%q", name)) {
			t.Errorf("no test of alert %s", name)
		}
		if !strings.Contains(page, "| `"+name+"` |") {
			t.Errorf("docs/metrics.md does not have alert %s", name)
		}
		severity := regexp.MustCompile(`(?m)^        labels: \{severity: (.*)\}$`).FindStringSubmatch(alerts[at[0]:end])
		switch {
		case severity == nil:
			t.Errorf("alert %s has no severity", name)
		case !slices.Contains(severities, severity[1]):
			t.Errorf("alert %s has severity %q: docs/metrics.md explains %q", name, severity[1], severities)
		case !strings.Contains(page, "| `"+name+"` | "+severity[1]+" |"):
			t.Errorf("alert %s has severity %s, and another one in docs/metrics.md", name, severity[1])
		}
		runbook := regexp.MustCompile(`(?m)^          runbook: "(.*)"$`).FindStringSubmatch(alerts[at[0]:end])
		if runbook == nil {
			t.Errorf("alert %s has no runbook", name)
			continue
		}
		commands := 0
		for command := range strings.SplitSeq(runbook[1], "; ") {
			words, ok := strings.CutPrefix(command, "culvert ")
			if !ok {
				continue
			}
			commands++
			verb := strings.Join(regexp.MustCompile(`^[a-z]+( [a-z]+)*`).FindStringSubmatch(words)[:1], "")
			if !strings.Contains(grammar, "\n| `"+verb+"` |") {
				t.Errorf("alert %s: there is no command %q", name, "culvert "+verb)
			}
			for _, flag := range regexp.MustCompile(` --?[a-z]+`).FindAllString(words, -1) {
				line := regexp.MustCompile("(?m)^\\| `[^`]*" + strings.TrimSpace(flag) + "\\b[^|]*\\|.*`" + verb + "`")
				if !line.MatchString(grammar) {
					t.Errorf("alert %s: culvert %s has no flag%s", name, verb, flag)
				}
			}
		}
		if commands == 0 {
			t.Errorf("the runbook of alert %s names no command of culvert", name)
		}
	}
	if documented := regexp.MustCompile("(?m)^\\| `Culvert\\w+` \\|").FindAllString(page, -1); len(documented) != len(rules) || len(rules) == 0 {
		t.Errorf("docs/metrics.md has %d alerts, there are %d", len(documented), len(rules))
	}
}

// documentedSeverities returns the severities that docs/metrics.md explains, the worst one first. The page has each once in the
// paragraph that says what a severity means.
func documentedSeverities(t *testing.T, page string) (all []string) {
	t.Helper()
	_, text, _ := strings.Cut(page, "`severity` is")
	text, _, ok := strings.Cut(text, "\n\n")
	for _, m := range regexp.MustCompile("`([a-z]+)` if|else `([a-z]+)`").FindAllStringSubmatch(text, -1) {
		all = append(all, m[1]+m[2])
	}
	if !ok || !slices.Equal(all, []string{"critical", "warning", "info"}) {
		t.Errorf("docs/metrics.md explains severities %q, want critical, warning and info", all)
	}
	return all
}

// Each metric in a rule is in docs/metrics.md, or is recorded by a rule.
func TestRulesAskForWhatThereIs(t *testing.T) {
	known, err := testbed.DocumentedMetrics("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	rules := readText(t, filepath.Join(rulesDir, "recording.rules.yml")) + readText(t, filepath.Join(rulesDir, "alerts.rules.yml"))
	for _, m := range regexp.MustCompile(`(?m)^        expr: (>-\n(?:          .*\n)+|.*\n)`).FindAllStringSubmatch(rules, -1) {
		for _, name := range testbed.MetricNames(m[1]) {
			_, documented := known[name]
			recorded := strings.Contains(rules, "- record: "+name+"\n")
			if !documented && !recorded && name != "up" && !strings.HasPrefix(name, "promhttp_") {
				t.Errorf("a rule asks for %s", name)
			}
		}
	}
}
