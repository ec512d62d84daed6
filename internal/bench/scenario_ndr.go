// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"culvert/internal/bench/report"
	"culvert/internal/bench/search"
)

// What scenario ndr measures unless told otherwise: the rows that matter most, at few lengths, because each search
// takes several seconds.
var (
	ndrRows  = []string{"bridge", "redirect", "culvert-cold", "culvert-warm", "reference"}
	ndrSizes = []string{"138", "508", "1514", imixWord}
)

// ndrWidth is how far apart the bounds of a no drop rate are, as a share of the upper one.
const ndrWidth = 0.02

// trialRow is a row at a frame length.
type trialRow struct {
	candidate
	length frameLength
}

func (r trialRow) String() string { return r.name + "@" + r.length.String() }

// trialRows combines candidates and frame lengths. SCION packets have no lengths below that of their headers: rows
// that would need them are left out, with a word in the progress.
// Without rows chosen by the user it takes those in rows, without lengths those in sizes.
func trialRows(chosen []candidate, o Options, rows, sizes []string) ([]trialRow, error) {
	if len(o.Sizes) > 0 {
		sizes = o.Sizes
	}
	lengths, err := parseSizes(sizes)
	if err != nil {
		return nil, err
	}
	least, err := shortestSCION()
	if err != nil {
		return nil, err
	}
	var out []trialRow
	for i, length := range lengths {
		if slices.Contains(lengths[:i], length) {
			continue
		}
		for _, c := range chosen {
			row := trialRow{candidate: c, length: length}
			switch {
			case len(o.Rows) == 0 && !slices.Contains(rows, c.name):
			case c.scion && length != imix && int(length) < least:
				fmt.Fprintf(o.Progress, "leaving %s out: SCION packets take at least %d bytes (--size %s)\n", row, least, shortest)
			default:
				out = append(out, row)
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w row among those asked for with frames of %s bytes: SCION packets take at least %d (--size %s)",
			ErrUnknown, strings.Join(sizes, " or "), least, shortest)
	}
	return out, nil
}

// inTurns visits rows for a number of rounds, beginning each with another row. A visit says what it found.
func inTurns(ctx context.Context, rows []trialRow, o Options, visit func(i int) (found string, err error)) error {
	total := o.Rounds * len(rows)
	shown := newSteps(o.Progress, total)
	for done := range total {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("interrupted: %w", err)
		}
		i := (done/len(rows) + done%len(rows)) % len(rows)
		step := fmt.Sprintf("%d of %d: %s", done+1, total, rows[i])
		shown.begin(step)
		found, err := visit(i)
		if err != nil {
			return fmt.Errorf("measure %s: %w", rows[i], err)
		}
		shown.end(step+" "+found, rows[i].String()+" "+found)
	}
	return nil
}

// ndrResult is what all searches of a row found.
type ndrResult struct {
	outcomes []search.Outcome
	sum      Sample
	missing  int64
	harness  uint64
	cpus     []int
}

// runNDR looks for the highest rate without loss of each row, for frames of several lengths.
func runNDR(ctx context.Context, chosen []candidate, o Options) (*report.Report, error) {
	rows, err := trialRows(chosen, o, ndrRows, ndrSizes)
	if err != nil {
		return nil, err
	}
	results := make([]ndrResult, len(rows))
	err = inTurns(ctx, rows, o, func(i int) (said string, err error) {
		t := trialOptions{length: rows[i].length, frames: coldFrames}
		p, err := openTrialPath(ctx, rows[i].candidate, o, t)
		defer func() { err = errors.Join(err, p.Close()) }()
		if err != nil {
			return "", err
		}
		found, err := p.findNDR(ctx, o.Round, ndrWidth)
		results[i].add(p, found)
		return fmt.Sprintf("%.3f Mpps, %d trials", found.Throughput/1e6, found.Trials), err
	})
	if err != nil {
		return nil, err
	}
	return ndrReport(rows, results), nil
}

func (r *ndrResult) add(p *trialPath, found search.Outcome) {
	r.outcomes = append(r.outcomes, found)
	r.cpus = []int{p.generator, p.device}
	r.sum.Sent += p.sum.Sent
	r.sum.Received += p.sum.Received
	if r.sum.Lost == nil {
		r.sum.Lost = map[string]uint64{}
	}
	for where, n := range p.sum.Lost {
		r.sum.Lost[where] += n
	}
	r.missing += p.missing
	r.harness += p.harnessLoss(p.sum)
}

// nonZero keeps the counts that are not 0.
func nonZero(counts map[string]uint64) map[string]uint64 {
	kept := maps.Clone(counts)
	maps.DeleteFunc(kept, func(_ string, n uint64) bool { return n == 0 })
	return kept
}

// ndrReport sums the searches up, and compares rows of the same frame length.
func ndrReport(rows []trialRow, results []ndrResult) *report.Report {
	r := &report.Report{Ratios: map[string]float64{}, RatioSpreads: map[string]report.Spread{}}
	rates := map[string][]float64{}
	for i, row := range rows {
		out, mpps := results[i].row(row)
		rates[out.Name] = mpps
		r.Rows = append(r.Rows, out)
	}
	for _, row := range rows {
		for _, base := range []string{"redirect", "bridge", "reference"} {
			name, against := row.String(), base+"@"+row.length.String()
			if name != against && rates[against] != nil && rates[name] != nil {
				spread := report.NewSpread(report.PairedRatios(rates[name], rates[against]))
				r.Ratios[name+"/"+against], r.RatioSpreads[name+"/"+against] = spread.Median, spread
			}
		}
	}
	return r
}

// row makes the report's row, and gives the no drop rate of each search in millions of packets a second.
func (r ndrResult) row(t trialRow) (out report.Row, mpps []float64) {
	out = report.Row{
		Name: t.String(), FrameSize: max(0, int(t.length)), CPUs: r.cpus, Frames: coldFrames,
		Sent: r.sum.Sent, Received: r.sum.Received, Lost: nonZero(r.sum.Lost), Valid: true,
	}
	var notes []string
	note := func(text string) {
		if !slices.Contains(notes, text) {
			notes = append(notes, text)
		}
	}
	if r.missing != 0 {
		out.Valid = false
		note(fmt.Sprintf("invalid: %d packets not accounted for", r.missing))
	}
	lowest, highest, trials := 0.0, 0.0, 0
	for _, found := range r.outcomes {
		mpps = append(mpps, found.Throughput/1e6)
		trials += found.Trials
		if lowest == 0 || found.Lower < lowest {
			lowest = found.Lower
		}
		highest = max(highest, found.Upper)
		if !found.Regular() {
			out.Valid = false
			note("invalid: irregular, " + found.Irregular)
		}
		if found.Limit == search.GeneratorLimit {
			note("at least: more could not be offered")
		}
	}
	ndr := report.NewSpread(mpps)
	out.NDR, out.Samples = &ndr, map[string][]float64{"ndr_mpps": mpps}
	note(fmt.Sprintf("bounds %.3f and %.3f Mpps, %d trials", lowest/1e6, highest/1e6, trials))
	if r.harness > 0 {
		note(fmt.Sprintf("%d packets lost behind the device, which are not held against it", r.harness))
	}
	out.Note = strings.Join(notes, "; ")
	return out, mpps
}
