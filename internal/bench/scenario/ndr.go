// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
	"culvert/internal/bench/search"
)

// The defaults of scenario ndr: the most important rows, with few frame lengths, because each search takes several seconds.
var (
	ndrRows  = []string{"bridge", "redirect", "culvert-cold", "culvert-warm", "reference"}
	ndrSizes = []string{"138", "508", "1514", load.IMIXWord}
)

// ndrWidth is the largest difference of the bounds of a no drop rate, as a share of the upper one.
const ndrWidth = 0.02

// ndrResult has the results of all searches of a row.
type ndrResult struct {
	outcomes []search.Outcome
	// sum adds up all trials.
	sum Sample
	// missing is the number of packets not accounted for, harness the number lost between device and sink.
	missing int64
	harness uint64
	// cpus are the CPUs of generator and device.
	cpus []int
}

// NDR is the scenario that searches for the highest rate without loss, the no drop rate.
func NDR() Scenario {
	return Scenario{Name: "ndr", Rounds: 1, Round: 200 * time.Millisecond, Candidates: peer.CandidatesOf("ndr"), Run: runNDR}
}

// runNDR searches for the highest rate without loss of each row, for frames of several lengths.
func runNDR(ctx context.Context, chosen []peer.Candidate, o Options) (*report.Report, error) {
	rows, absent, err := trialRows(chosen, o, ndrRows, ndrSizes)
	if err != nil {
		return nil, err
	}
	results := make([]ndrResult, len(rows))
	err = inTurns(ctx, rows, o, func(i int) (result string, err error) {
		t := trialOptions{length: rows[i].length, frames: peer.ColdFrames}
		p, err := openTrialPath(ctx, rows[i].Candidate, o, t)
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
	r := ndrReport(rows, results)
	r.Rows = append(r.Rows, absent...)
	return r, nil
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

// nonZero returns the counts that are not 0.
func nonZero(counts map[string]uint64) map[string]uint64 {
	kept := maps.Clone(counts)
	maps.DeleteFunc(kept, func(_ string, n uint64) bool { return n == 0 })
	return kept
}

// ndrReport makes the report of all searches, and compares rows of the same frame length.
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

// row is the row of the report. mpps has the no drop rate of each search, in millions of packets a second.
func (r ndrResult) row(t trialRow) (out report.Row, mpps []float64) {
	out = report.Row{
		Name: t.String(), FrameSize: t.frameSize(), CPUs: r.cpus, Frames: peer.ColdFrames,
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
	note(fmt.Sprintf("no loss when %.3f Mpps were asked for, loss at %.3f; %d trials", lowest/1e6, highest/1e6, trials))
	if r.harness > 0 {
		note(fmt.Sprintf("%d packets lost behind the device, which are not held against it", r.harness))
	}
	out.Note = strings.Join(notes, "; ")
	return out, mpps
}
