// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
	"culvert/internal/bench/search"
)

// The defaults of scenario latency. SCION packets shorter than 150 bytes have no room for a stamp.
var (
	latencyRows  = []string{"direct", "bridge", "redirect", "culvert-cold", "culvert-warm", "reference"}
	latencySizes = []string{"150"}
)

// latencyLoads are the offered rates, as shares of the highest rate without loss.
var latencyLoads = []float64{0.1, 0.5, 0.9}

const (
	// latencyWidth is the width of the search for the rate that the loads are shares of (see ndrWidth).
	latencyWidth = 0.05
	// latencySearch is the longest duration of that search's trials.
	latencySearch = 100 * time.Millisecond
)

// latencyResult has the measurements of a row in all rounds.
type latencyResult struct {
	// ndr is the highest rate without loss, in packets a second. The first round finds it.
	ndr float64
	// irregular says why the search for ndr was irregular. It is empty if it was not.
	irregular string
	// limited is set if the generator, not the device, limits ndr.
	limited bool
	// delays has the latencies at each of latencyLoads.
	delays []load.Histogram
	// sent has the sum of all trials at each of latencyLoads.
	sent    []Sample
	lost    map[string]uint64
	missing int64
	cpus    []int
}

// Latency is the scenario that measures the latency of packets.
func Latency() Scenario {
	return Scenario{Name: "latency", Rounds: 3, Round: 500 * time.Millisecond, Candidates: peer.CandidatesOf("latency"), Run: runLatency}
}

// runLatency measures the latency of packets at shares of each row's no drop rate.
func runLatency(ctx context.Context, chosen []peer.Candidate, o Options) (*report.Report, error) {
	rows, absent, err := trialRows(chosen, o, latencyRows, latencySizes)
	if err != nil {
		return nil, err
	}
	if err := checkStampable(rows); err != nil {
		return nil, err
	}
	results := make([]latencyResult, len(rows))
	err = inTurns(ctx, rows, o, func(i int) (result string, err error) {
		t := trialOptions{length: rows[i].length, frames: peer.ColdFrames, stamped: true}
		p, err := openTrialPath(ctx, rows[i].Candidate, o, t)
		defer func() { err = errors.Join(err, p.Close()) }()
		if err != nil {
			return "", err
		}
		return results[i].measure(ctx, p, o.Round)
	})
	if err != nil {
		return nil, err
	}
	r := &report.Report{}
	for i, row := range rows {
		r.Rows = append(r.Rows, results[i].row(row))
	}
	r.Rows = append(r.Rows, absent...)
	return r, nil
}

// checkStampable returns an error if the frames of a row are too short for a stamp.
func checkStampable(rows []trialRow) error {
	least, err := peer.ShortestSCION()
	if err != nil {
		return err
	}
	for _, row := range rows {
		need := load.MinUDPFrame + load.StampLen
		if row.SCION {
			need = least + load.StampLen
		}
		if slices.Min(row.length.Sizes()) < need {
			return fmt.Errorf("%w --size %s for row %s: the time is kept in the last %d bytes of a frame, so give %d to %d bytes",
				ErrOption, row.length, row.Name, load.StampLen, need, peer.MaxSize)
		}
	}
	return nil
}

// measure adds a round. It returns the median latency at the highest load as text.
func (r *latencyResult) measure(ctx context.Context, p *trialPath, round time.Duration) (string, error) {
	if r.delays == nil {
		r.delays, r.sent = make([]load.Histogram, len(latencyLoads)), make([]Sample, len(latencyLoads))
		r.cpus, r.lost = []int{p.generator, p.device}, map[string]uint64{}
		found, err := p.findNDR(ctx, min(round, latencySearch), latencyWidth)
		if err != nil {
			return "", err
		}
		r.ndr, r.irregular, r.limited = found.Throughput, found.Irregular, found.Limit == search.GeneratorLimit
	}
	if r.ndr == 0 {
		return "has no rate without loss", nil
	}
	before := p.missing
	for i, share := range latencyLoads {
		if err := p.row.Sink.Reset(); err != nil {
			return "", err
		}
		s, err := p.trial(ctx, share*r.ndr, round)
		if err != nil {
			return "", err
		}
		h, err := p.row.Sink.Latency()
		if err != nil {
			return "", err
		}
		r.sent[i].Sent += s.Sent
		r.sent[i].Received += s.Received
		r.sent[i].Elapsed += s.Elapsed
		for where, n := range s.Lost {
			r.lost[where] += n
		}
		r.delays[i].Add(h)
	}
	r.missing += p.missing - before
	last := len(latencyLoads) - 1
	return fmt.Sprintf("%.1f us at %.3f Mpps", r.delays[last].Quantile(0.5)/1e3, r.sent[last].Offered()), nil
}

// row is the row of the report.
func (r latencyResult) row(t trialRow) report.Row {
	ndr := report.NewSpread([]float64{r.ndr / 1e6})
	out := report.Row{
		Name: t.String(), FrameSize: t.frameSize(), CPUs: r.cpus, Frames: peer.ColdFrames,
		NDR: &ndr, Lost: nonZero(r.lost), Valid: true,
	}
	var notes []string
	invalid := func(why string) {
		out.Valid = false
		notes = append(notes, "invalid: "+why)
	}
	if r.missing != 0 {
		invalid(fmt.Sprintf("%d packets not accounted for", r.missing))
	}
	if r.irregular != "" {
		invalid("no rate without loss was found: " + r.irregular)
	}
	for i, share := range latencyLoads {
		if load, offered := share*r.ndr/1e6, r.sent[i].Offered(); offered < load*(1-rateShortfall) {
			invalid(fmt.Sprintf("the generator sent %.3f Mpps instead of %.3f", offered, load))
		}
	}
	if r.limited {
		notes = append(notes, "loads are shares of what could be offered: the device may take more")
	}
	for i, share := range latencyLoads {
		out.Sent += r.sent[i].Sent
		out.Received += r.sent[i].Received
		if r.delays[i].Packets() > 0 {
			out.Latency = append(out.Latency, r.delays[i].Report(share, r.sent[i].Offered()))
		}
	}
	if lost := out.Sent - min(out.Sent, out.Received); lost > 0 {
		notes = append(notes, fmt.Sprintf("%d packets were lost and have no time", lost))
	}
	out.Note = strings.Join(notes, "; ")
	return out
}
