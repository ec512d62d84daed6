// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

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
	// asked is the length that the user asked for, if frames cannot be that short.
	asked []string
}

func (r trialRow) String() string { return r.name + "@" + r.length.String() }

// trialRows combines candidates and frame lengths. What cannot be as short as asked for is as short as it can be.
// Without rows chosen by the user it takes those in rows, without lengths those in sizes.
func trialRows(chosen []candidate, o Options, rows, sizes []string) ([]trialRow, error) {
	if len(o.Sizes) > 0 {
		sizes = o.Sizes
	}
	all, err := parseSizes(sizes)
	if err != nil {
		return nil, err
	}
	var out []trialRow
	for _, length := range all {
		for _, c := range chosen {
			if len(o.Rows) == 0 && !slices.Contains(rows, c.name) {
				continue
			}
			row := trialRow{candidate: c, length: length}
			shortest, err := shortestFrame(c, o)
			if err != nil {
				return nil, err
			}
			if length != imix && int(length) < shortest {
				row.length, row.asked = frameLength(shortest), []string{length.String()}
			}
			same := slices.IndexFunc(out, func(r trialRow) bool { return r.String() == row.String() })
			if same < 0 {
				out = append(out, row)
			} else {
				out[same].asked = append(out[same].asked, row.asked...)
			}
		}
	}
	return out, nil
}

// shortestFrame is the length of the shortest frame that a candidate can forward.
func shortestFrame(c candidate, o Options) (int, error) {
	if c.device == nil {
		return minUDPFrame, nil
	}
	d := c.device(o)
	setFrameLength(d, 1)
	none := End{MAC: make([]byte, 6)}
	frames, err := d.Frames(Path{Source: none, In: none, Out: none, Sink: none}, [][]byte{make([]byte, minUDPFrame)})
	if err != nil {
		return 0, err
	}
	return len(frames[0]), nil
}

// notes says what is particular about the row.
func (r trialRow) notes() []string {
	if len(r.asked) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s bytes asked for, but the headers of a SCION packet alone take %s",
		strings.Join(r.asked, " and "), r.length)}
}

// inTurns visits rows for a number of rounds, beginning each with another row, and says how long it may still take.
func inTurns(ctx context.Context, rows []trialRow, o Options, visit func(i int) error) error {
	begin := time.Now()
	total := o.Rounds * len(rows)
	for done := range total {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("interrupted: %w", err)
		}
		left := "?"
		if done > 0 {
			left = (time.Since(begin) / time.Duration(done) * time.Duration(total-done)).Round(time.Second).String()
		}
		round := done / len(rows)
		i := (round + done%len(rows)) % len(rows)
		fmt.Fprintf(o.Progress, "%d of %d: %s, about %s left\n", done+1, total, rows[i], left)
		if err := visit(i); err != nil {
			return fmt.Errorf("measure %s: %w", rows[i], err)
		}
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
	err = inTurns(ctx, rows, o, func(i int) error {
		t := trialOptions{length: rows[i].length, frames: coldFrames}
		p, err := openTrialPath(ctx, rows[i].candidate, o, t)
		return p.closing(func() error {
			if err != nil {
				return err
			}
			found, err := p.findNDR(ctx, o.Round, ndrWidth)
			if err != nil {
				return err
			}
			fmt.Fprintf(o.Progress, "%s: no loss at %.3f Mpps after %d trials\n", rows[i], found.Throughput/1e6, found.Trials)
			results[i].add(p, found)
			return nil
		})
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
	r := &report.Report{Ratios: map[string]float64{}}
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
				r.Ratios[name+"/"+against] = report.NewSpread(report.PairedRatios(rates[name], rates[against])).Median
			}
		}
	}
	return r
}

// row makes the report's row, and gives the no drop rate of each search in millions of packets a second.
func (r ndrResult) row(t trialRow) (out report.Row, mpps []float64) {
	out = report.Row{
		Name: t.String(), FrameSize: int(t.length), CPUs: r.cpus, Frames: coldFrames,
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
	out.NDR = &ndr
	note(fmt.Sprintf("bounds %.3f and %.3f Mpps, %d trials", lowest/1e6, highest/1e6, trials))
	if r.harness > 0 {
		note(fmt.Sprintf("%d packets lost behind the device, which are not held against it", r.harness))
	}
	out.Note = strings.Join(append(notes, t.notes()...), "; ")
	return out, mpps
}
