// SPDX-License-Identifier: Apache-2.0

package filterrun

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario"
)

// floodLadder are the rates of a flood, in packets a second, as far as the generator reaches them. The last flood has all
// that it can send.
var floodLadder = []float64{0, 0.1e6, 0.25e6, 0.5e6, 0.75e6, 1e6, 1.25e6, 1.5e6, 2e6, 3e6, 4e6, 6e6, 8e6}

const (
	// haltShare is the share of transactions below which a connection counts as halted.
	haltShare = 0.05
	// haltSteps is how often the range in which the rate lies that halts a connection is halved.
	haltSteps = 3
	// floodRounds is how often each flood is measured.
	floodRounds = 3
	// floodSettle is how long transactions go on before they are counted: without the flood, and then with it. A call
	// to the generator takes some 27 ms before it sends.
	floodSettle = 70 * time.Millisecond
	// tenfold is how many times the rate that halts a peer's connection ours is to bear.
	tenfold = 10
)

// floodRow is a host whose client asks while it is flooded. The flood has a CPU, and the host another one, where a kernel
// thread receives before all else that runs there, as a soft interrupt does.
type floodRow struct {
	Row
	// floods has what was measured, by rate.
	floods map[float64]*floodTally
	sample scenario.Sample
}

// floodTally is what was measured of one rate, round by round.
type floodTally struct{ offered, answered, lost []float64 }

// Setup has the thread receive.
func (r *floodRow) Setup(ctx context.Context) error {
	if err := r.Row.Setup(ctx); err != nil {
		return err
	}
	p := r.bed.path
	if err := listen(p.Source); err != nil {
		return err
	}
	for _, side := range []struct {
		end load.End
		cpu int
	}{{p.In, r.cpu}, {p.Source, r.from}} {
		if err := load.ReceiveOn(side.end, side.cpu); err != nil {
			return err
		}
		if err := load.SetReceiverRealtime(side.end); err != nil {
			return err
		}
	}
	return nil
}

// flood counts the transactions of a round at a rate, with one connection for it.
func (r *floodRow) flood(ctx context.Context, rate, most float64, round time.Duration) error {
	before, err := r.bed.count(ctx)
	if err != nil {
		return err
	}
	t, err := startTransactions(r.bed.tester, r.bed.under, r.from, r.cpu)
	if err != nil {
		return err
	}
	defer func() { _ = t.stop() }()
	pace, expected := rate, min(rate, most)
	if rate >= most {
		pace = 0
	}
	r.gen.Pace(pace)
	var sent load.Sent
	sending := make(chan error, 1)
	rest(floodSettle)
	if rate == 0 {
		sending <- nil
	} else {
		go func() {
			sent, err = r.gen.Run(ctx, max(1, uint64(expected*(round+2*floodSettle).Seconds())))
			sending <- err
		}()
	}
	var answered uint64
	var window time.Duration
	// What measures must get its turn beside the generator.
	pinErr := load.OnThread(func() error {
		if err := errors.Join(load.Pin(r.from), load.SetNice(0, soonest)); err != nil {
			return err
		}
		rest(floodSettle)
		start, first := time.Now(), t.answered.Load()
		rest(round)
		answered, window = t.answered.Load()-first, time.Since(start)
		return nil
	})
	if err := errors.Join(<-sending, pinErr, t.stop()); err != nil {
		return err
	}
	s, err := r.settle(ctx, before, scenario.Sample{Sent: sent.Packets, Elapsed: sent.Elapsed})
	if err != nil {
		return err
	}
	r.sample.Sent += s.Sent
	r.sample.Received += s.Received
	lost := uint64(0)
	for where, n := range s.Lost {
		r.sample.Lost[where] += n
		lost += n
	}
	tally := r.floods[rate]
	if tally == nil {
		tally = &floodTally{}
		r.floods[rate] = tally
	}
	tally.offered = append(tally.offered, s.Offered())
	tally.answered = append(tally.answered, float64(answered)/window.Seconds())
	tally.lost = append(tally.lost, float64(lost)/float64(max(s.Sent, 1)))
	return nil
}

// rest sleeps without the help of the Go runtime, whose threads may have to wait for a CPU that a flood has taken.
func rest(d time.Duration) {
	left := unix.NsecToTimespec(d.Nanoseconds())
	for errors.Is(unix.Nanosleep(&left, &left), unix.EINTR) {
	}
}

// share is the median share of transactions at a rate, of those without a flood in the same round.
func (r *floodRow) share(rate float64) report.Spread {
	return report.NewSpread(report.PairedRatios(r.floods[rate].answered, r.floods[0].answered))
}

// runFloods measures what is left of an innocent client's transactions.
func runFloods(ctx context.Context, available []peer.Candidate, g *group, o scenario.Options) (_ *report.Report, err error) {
	if load.AllowedCPUs() < 2 {
		scenario.KeepLine(o.Progress, fmt.Sprintf("leaving group %s out: it needs 2 CPUs, and this process may use %d", g.name, load.AllowedCPUs()))
		return &report.Report{}, nil
	}
	var rows []*floodRow
	defer func() {
		for _, r := range rows {
			err = errors.Join(err, r.Teardown())
		}
	}()
	cpu := load.LastCPU()
	awake, err := keepAwake(cpu, load.AnotherCPU(cpu))
	defer func() { err = errors.Join(err, awake.end()) }()
	if err != nil {
		return nil, err
	}
	for _, c := range available {
		if !g.has(c) && !(slices.Contains(o.Rows, c.Name) && c.Name != "none") {
			continue
		}
		r := &floodRow{
			Row: Row{
				name: c.Name + "@" + g.name, group: g, bed: newBed(filters()[c.Name](), g.rulesOf(c)), cpu: cpu, from: load.AnotherCPU(cpu),
			},
			floods: map[float64]*floodTally{}, sample: scenario.Sample{Lost: map[string]uint64{}},
		}
		rows = append(rows, r)
		fmt.Fprintf(o.Progress, "setting up %s\n", r.name)
		if err := r.Setup(ctx); err != nil {
			return nil, fmt.Errorf("set %s up: %w", r.name, err)
		}
	}
	if len(rows) == 0 {
		return &report.Report{}, nil
	}
	most, err := rows[0].most(ctx)
	if err != nil {
		return nil, err
	}
	rates := slices.DeleteFunc(slices.Clone(floodLadder), func(rate float64) bool { return rate > 0.9*most })
	if err := flooded(ctx, rows, append(rates, most), most, o); err != nil {
		return nil, err
	}
	notes, err := findHalts(ctx, rows, most, o)
	if err != nil {
		return nil, err
	}
	return floodReport(rows, most, notes), nil
}

// most finds how many packets a second the generator sends at most.
func (r *floodRow) most(ctx context.Context) (float64, error) {
	const short = 300_000
	r.gen.Pace(0)
	sent, err := r.gen.Run(ctx, short)
	if err == nil {
		sent, err = r.gen.Run(ctx, 5*short)
	}
	if err != nil {
		return 0, err
	}
	return float64(sent.Packets) / sent.Elapsed.Seconds(), nil
}

// flooded measures all rows at all rates, which take turns.
func flooded(ctx context.Context, rows []*floodRow, rates []float64, most float64, o scenario.Options) error {
	rounds := min(o.Rounds, floodRounds)
	track := scenario.NewSteps(o.Progress, rounds*len(rates)*len(rows))
	for round := range rounds {
		for _, rate := range rates {
			for turn := range rows {
				r := rows[(round+turn)%len(rows)]
				if err := ctx.Err(); err != nil {
					return fmt.Errorf("interrupted: %w", err)
				}
				what := fmt.Sprintf("round %d of %d: %s with %.2f Mpps", round+1, rounds, r.name, rate/1e6)
				track.Begin(what)
				if err := r.flood(ctx, rate, most, o.Round); err != nil {
					return fmt.Errorf("measure %s: %w", r.name, err)
				}
				t := r.floods[rate]
				track.End(fmt.Sprintf("%s: %.0f transactions a second", what, t.answered[len(t.answered)-1]), r.name)
			}
		}
	}
	return nil
}

// findHalts looks for the rate that halts the connection of each of iptables' rows, and measures all rows there and at ten
// times as much. It returns what is to be said of each row.
func findHalts(ctx context.Context, rows []*floodRow, most float64, o scenario.Options) (map[string]string, error) {
	notes := map[string]string{}
	for _, peer := range rows {
		if !strings.HasPrefix(peer.name, "iptables") {
			continue
		}
		good, halted := 0.0, math.Inf(1)
		for rate := range peer.floods {
			if peer.share(rate).Median < haltShare {
				halted = min(halted, rate)
			}
		}
		for rate := range peer.floods {
			if rate < halted {
				good = max(good, rate)
			}
		}
		if math.IsInf(halted, 1) {
			notes[peer.name] = "no rate that the generator reaches halts the connection"
			continue
		}
		for range haltSteps {
			middle := (good + halted) / 2
			if err := flooded(ctx, []*floodRow{peer}, []float64{middle}, most, o); err != nil {
				return nil, err
			}
			if peer.share(middle).Median < haltShare {
				halted = middle
			} else {
				good = middle
			}
		}
		others := slices.DeleteFunc(slices.Clone(rows), func(r *floodRow) bool { return r.floods[halted] != nil })
		if err := flooded(ctx, others, []float64{halted}, most, o); err != nil {
			return nil, err
		}
		more := min(tenfold*halted, most)
		notes[peer.name] = fmt.Sprintf("its connection halts at %.2f Mpps", halted/1e6)
		reach := "at ten times as much %.0f %%"
		if more < tenfold*halted {
			reach = fmt.Sprintf("at the generator's most, %.1f times as much, %%.0f %%%%", more/halted)
		}
		others = slices.DeleteFunc(slices.Clone(rows), func(r *floodRow) bool { return r.floods[more] != nil })
		if err := flooded(ctx, others, []float64{more}, most, o); err != nil {
			return nil, err
		}
		for _, r := range rows {
			if r == peer {
				continue
			}
			note := fmt.Sprintf("where %s halts, %.2f Mpps, it keeps %.0f %% of its transactions, ", peer.name, halted/1e6,
				100*r.share(halted).Median) + fmt.Sprintf(reach, 100*r.share(more).Median)
			notes[r.name] = strings.TrimPrefix(notes[r.name]+"; "+note, "; ")
		}
	}
	return notes, nil
}

// floodReport sums up.
func floodReport(rows []*floodRow, most float64, notes map[string]string) *report.Report {
	all := &report.Report{}
	for _, r := range rows {
		row := report.Row{
			Name: r.name, Sent: r.sample.Sent, Received: r.sample.Received, Lost: r.sample.Lost, Valid: r.sample.Accounted(),
			Note: notes[r.name],
		}
		r.Describe(&row)
		row.CPUs = []int{min(r.from, r.cpu), max(r.from, r.cpu)}
		if !row.Valid {
			row.Note = fmt.Sprintf("invalid: %d packets not accounted for", r.sample.Missing())
		}
		rates := make([]float64, 0, len(r.floods))
		for rate := range r.floods {
			rates = append(rates, rate)
		}
		slices.Sort(rates)
		for _, rate := range rates {
			t := r.floods[rate]
			row.Floods = append(row.Floods, report.Flood{
				Asked: rate / 1e6, Most: rate >= most, Offered: report.NewSpread(t.offered),
				Transactions: report.NewSpread(t.answered), Share: r.share(rate), Lost: report.NewSpread(t.lost),
			})
		}
		all.Rows = append(all.Rows, row)
	}
	return all
}
