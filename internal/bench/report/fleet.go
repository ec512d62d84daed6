// SPDX-License-Identifier: Apache-2.0

package report

import "fmt"

// Fleet has the figures of a fleet of simulated nodes.
type Fleet struct {
	// Nodes is how many there were.
	Nodes int `json:"nodes"`
	// Figures are in the order of tables.
	Figures []FleetFigure `json:"figures"`
}

// FleetFigure is a figure with its spread over rounds.
type FleetFigure struct {
	// Name is stable, and the key of the single rounds in Row.Samples.
	Name string `json:"name"`
	// Unit is that of the figures, empty for a number.
	Unit   string `json:"unit,omitempty"`
	Spread Spread `json:"spread"`
}

func hasFleet(row Row) bool { return row.Fleet != nil }

// fleetColumns are the columns of the table of fleets, with a line for each figure.
func fleetColumns(rows []Row) []column {
	all := []column{
		{head: "row", left: true}, {head: "figure", left: true}, {head: "median"}, {head: "min"}, {head: "max"}, {head: "unit", left: true},
		{head: "rounds"},
	}
	for _, row := range rows {
		for _, f := range row.Fleet.Figures {
			for i, cell := range []string{
				row.label(), f.Name, digits(f.Spread.Median), digits(f.Spread.Min), digits(f.Spread.Max), f.Unit, fmt.Sprint(len(row.Samples[f.Name])),
			} {
				all[i].add(cell)
			}
		}
	}
	return all
}

// digits writes a figure with about three significant digits.
func digits(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
