// SPDX-License-Identifier: Apache-2.0

// Package bench lists the scenarios, which measure culvert beside its peers. Every figure is taken in interleaved rounds
// and reported as a median with its extremes. Every packet of a run is accounted for.
package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"culvert/internal/bench/load"
	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario"
	"culvert/internal/bench/scenario/filterrun"
	"culvert/internal/bench/scenario/fleetrun"
	"culvert/internal/bench/scenario/lbrun"
	"culvert/internal/bench/scenario/routerun"
)

// scenarios lists all scenarios, in the order of help texts.
func scenarios() []scenario.Scenario {
	return []scenario.Scenario{
		scenario.Veth(), scenario.Workers(), scenario.Cost(), scenario.Scion3(),
		routerun.Scenario(), filterrun.Scenario(), lbrun.Scenario(),
		scenario.NDR(), scenario.Latency(), scenario.Generator(), fleetrun.Scenario(),
	}
}

// Scenarios lists the names that Run takes.
func Scenarios() []string {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.Name)
	}
	return names
}

// Defaults describes the defaults of all scenarios for help texts: how often each measures a row, and for how many
// seconds each time.
func Defaults() (rounds, seconds string) {
	var counts, lengths []string
	for _, s := range scenarios() {
		counts = append(counts, fmt.Sprintf("%d for %s", s.Rounds, s.Name))
		lengths = append(lengths, fmt.Sprintf("%v for %s", s.Round.Seconds(), s.Name))
	}
	return strings.Join(counts, ", "), strings.Join(lengths, ", ")
}

// RowNames lists the names of a scenario's rows, in the order of reports.
func RowNames(scenario string) []string {
	for _, s := range scenarios() {
		if s.Name == scenario {
			return s.RowNames()
		}
	}
	return nil
}

// Run measures the rows of a scenario beside each other. It leaves nothing behind, also when ctx ends.
func Run(ctx context.Context, name string, o scenario.Options) (*report.Report, error) {
	known := scenarios()
	i := slices.IndexFunc(known, func(s scenario.Scenario) bool { return s.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("%w scenario %q: there are %s", load.ErrUnknown, name, strings.Join(Scenarios(), ", "))
	}
	return known[i].Measure(ctx, o)
}
