// SPDX-License-Identifier: Apache-2.0

package fleetrun

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario"
)

// rounds has the figures of a row, round by round.
type rounds struct {
	name  string
	count int
	// each is how long a round takes whose length can be chosen.
	each     time.Duration
	entries  int // of the large set
	progress io.Writer

	figures []report.FleetFigure
	values  map[string][]float64
	note    string
	warm    bool // the round does not count
}

// do calls a function for each round, and before for one that does not count if warm is set and there are several.
func (r *rounds) do(ctx context.Context, warm bool, round func(n int) (result string, err error)) error {
	first := 1
	if warm && r.count > 1 {
		first = 0
	}
	track := scenario.NewSteps(r.progress, r.count+1-first)
	for n := first; n <= r.count; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.warm = n == 0
		step := fmt.Sprintf("round %d of %d: %s", n, r.count, r.name)
		if r.warm {
			step = "warming up " + r.name
		}
		track.Begin(step)
		result, err := round(n)
		if err != nil {
			return err
		}
		track.End(step+" "+result, r.name+" "+result)
	}
	return nil
}

// add takes the figure of a round.
func (r *rounds) add(name, unit string, value float64) {
	if r.warm {
		return
	}
	if r.values[name] == nil {
		r.figures = append(r.figures, report.FleetFigure{Name: name, Unit: unit})
	}
	r.values[name] = append(r.values[name], value)
}

// addTimes takes the times of all nodes in a round, and returns the median, the 99th percentile and the longest in seconds.
func (r *rounds) addTimes(what string, all []time.Duration) (p50, p99, most float64) {
	slices.Sort(all)
	at := func(share float64) float64 { return all[int(share*float64(len(all)-1)+0.5)].Seconds() }
	p50, p99, most = at(0.5), at(0.99), at(1)
	r.add(what+", p50", seconds, p50)
	r.add(what+", p99", seconds, p99)
	r.add(what+", last", seconds, most)
	return p50, p99, most
}

// Units of figures.
const (
	seconds  = "s"
	count    = ""
	perS     = "/s"
	bytesPer = "kB/s"
	mebi     = "MiB"
	kibi     = "KiB"
	cores    = "CPUs"
)

func (r *rounds) row(nodes int) report.Row {
	row := report.Row{Name: r.name, Valid: true, Note: r.note, Fleet: &report.Fleet{Nodes: nodes}, Samples: r.values}
	for _, f := range r.figures {
		f.Spread = report.NewSpread(r.values[f.Name])
		row.Fleet.Figures = append(row.Fleet.Figures, f)
	}
	return row
}
