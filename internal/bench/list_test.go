// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/scenario"
)

func TestUnknownNames(t *testing.T) {
	tests := []struct {
		scenario string
		rows     []string
	}{
		{"nothing", nil},
		{"veth", []string{"redirect", "nothing"}},
		{"cost", []string{"bridge"}},
	}
	for _, tc := range tests {
		_, err := Run(context.Background(), tc.scenario, scenario.Options{Rows: tc.rows, Progress: io.Discard})
		if !errors.Is(err, load.ErrUnknown) {
			t.Errorf("%s %v: error %v", tc.scenario, tc.rows, err)
		}
	}
}

// A scenario refuses the options that only other scenarios have.
func TestOptionsOfOtherScenarios(t *testing.T) {
	for _, tc := range []struct {
		scenario string
		o        scenario.Options
		want     string
	}{
		{"cost", scenario.Options{Sizes: []string{"64"}}, "--size is not for scenario cost"},
		{"cost", scenario.Options{CPUs: []int{2}}, "--cpus is not for"},
		{"ndr", scenario.Options{CPUs: []int{1}}, "--cpus is not for"},
		{"workers", scenario.Options{Sizes: []string{"150"}}, "--size is not for"},
		{"veth", scenario.Options{Lab: "scion3"}, "--lab is not for"},
		{"veth", scenario.Options{Groups: []string{"4-few"}}, "--groups is not for scenario veth, only for route"},
		{"route", scenario.Options{Sizes: []string{"64"}}, "--size is not for"},
		{"veth", scenario.Options{Round: time.Nanosecond}, "--seconds 1e-09: give 0.001 to 3600"},
		{"veth", scenario.Options{Round: 2 * time.Hour}, "--seconds 7200"},
	} {
		tc.o.Progress = io.Discard
		if _, err := Run(t.Context(), tc.scenario, tc.o); !errors.Is(err, scenario.ErrOption) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %+v: error %v", tc.scenario, tc.o, err)
		}
	}
	_, err := Run(t.Context(), "veth", scenario.Options{Rows: []string{"direct@512"}, Progress: io.Discard})
	if !errors.Is(err, load.ErrUnknown) || !strings.Contains(err.Error(), "--size") {
		t.Errorf("a variant as a row: error %v", err)
	}
}

// The tables of rows in the documentation name every row.
func TestRowsAreDocumented(t *testing.T) {
	var pages string
	for _, page := range []string{"benchmarks", "workers"} {
		text, err := os.ReadFile("../../docs/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		pages += string(text)
	}
	for _, scenario := range Scenarios() {
		for _, name := range RowNames(scenario) {
			name, _, variant := strings.Cut(name, "@")
			if !variant {
				name += "`"
			}
			if !strings.Contains(pages, "| `"+name) && !strings.Contains(pages, ", `"+name) {
				t.Errorf("row `%s of scenario %s is in no table of docs/benchmarks.md or docs/workers.md", name, scenario)
			}
		}
	}
}
