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

// floodLadder are the rates of floods, in packets a second. Rates that the generator does not reach are left out. The last
// flood is as fast as the generator can send.
var floodLadder = []float64{0, 0.1e6, 0.25e6, 0.5e6, 0.75e6, 1e6, 1.25e6, 1.5e6, 2e6, 3e6, 4e6, 6e6, 8e6}

const (
	// haltShare is the share of transactions below which a connection counts as halted.
	haltShare = 0.05
	// haltSteps is the number of bisection steps in the search for the rate that halts a connection.
	haltSteps = 3
	// floodRounds is how often each flood is measured.
	floodRounds = 3
	// floodSettle is how long transactions run before they are counted: without the flood, and then with it. It covers the
	// 27 ms that the generator needs before it sends.
	floodSettle = 70 * time.Millisecond
	// haltFactor is the multiple of the rate that halts iptables' connection at which all rows are measured.
	haltFactor = 10
)

// floodRow is a host with a client that makes transactions while it is flooded. The flood has one CPU and the host another.
// There a kernel thread receives with real-time priority, as a soft interrupt would.
type floodRow struct {
	Row
	// floods has the measurements by rate, in packets a second.
	floods map[float64]*floodTally
	// sample adds up the packets of all floods.
	sample scenario.Sample
}

// floodTally has the measurements at one rate, round by round: the rate in millions of packets a second, transactions a
// second, and the share of the packets that were lost.
type floodTally struct{ offered, answered, lost []float64 }

// Setup implements scenario.Row. Both ends of the wire receive in kernel threads.
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

// flood measures a round of transactions, over a connection of its own, with a flood at the given rate. maxRate is the highest
// rate of the generator. Both are in packets a second.
func (r *floodRow) flood(ctx context.Context, rate, maxRate float64, round time.Duration) error {
	before, err := r.bed.count(ctx)
	if err != nil {
		return err
	}
	t, err := startTransactions(r.bed.tester, r.bed.under, r.from, r.cpu)
	if err != nil {
		return err
	}
	defer func() { _ = t.stop() }()
	pace, expected := rate, min(rate, maxRate)
	if rate >= maxRate {
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
	// This thread shares its CPU with the generator and needs a higher priority than that.
	pinErr := load.OnThread(func() error {
		if err := errors.Join(load.Pin(r.from), load.SetNice(0, niceTransactions)); err != nil {
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

// rest sleeps in a system call. time.Sleep depends on other threads of the Go runtime, which may have to wait for a CPU that is
// busy with the flood.
func rest(d time.Duration) {
	left := unix.NsecToTimespec(d.Nanoseconds())
	for errors.Is(unix.Nanosleep(&left, &left), unix.EINTR) {
	}
}

// share is the number of transactions at a rate, as a share of those without a flood in the same round.
func (r *floodRow) share(rate float64) report.Spread {
	return report.NewSpread(report.PairedRatios(r.floods[rate].answered, r.floods[0].answered))
}

// runFloods measures how many transactions an innocent client can make during floods.
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
	maxRate, err := rows[0].maxRate(ctx)
	if err != nil {
		return nil, err
	}
	rates := slices.DeleteFunc(slices.Clone(floodLadder), func(rate float64) bool { return rate > 0.9*maxRate })
	if err := measureFloods(ctx, rows, append(rates, maxRate), maxRate, o); err != nil {
		return nil, err
	}
	notes, err := findHalts(ctx, rows, maxRate, o)
	if err != nil {
		return nil, err
	}
	return floodReport(rows, maxRate, notes), nil
}

// maxRate measures the highest rate of the generator, in packets a second.
func (r *floodRow) maxRate(ctx context.Context) (float64, error) {
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

// measureFloods measures all rows at all rates. Rows take turns.
func measureFloods(ctx context.Context, rows []*floodRow, rates []float64, maxRate float64, o scenario.Options) error {
	rounds := min(o.Rounds, floodRounds)
	track := scenario.NewSteps(o.Progress, rounds*len(rates)*len(rows))
	for round := range rounds {
		for _, rate := range rates {
			for turn := range rows {
				r := rows[(round+turn)%len(rows)]
				if err := ctx.Err(); err != nil {
					return fmt.Errorf("interrupted: %w", err)
				}
				step := fmt.Sprintf("round %d of %d: %s with %.2f Mpps", round+1, rounds, r.name, rate/1e6)
				track.Begin(step)
				if err := r.flood(ctx, rate, maxRate, o.Round); err != nil {
					return fmt.Errorf("measure %s: %w", r.name, err)
				}
				t := r.floods[rate]
				track.End(fmt.Sprintf("%s: %.0f transactions a second", step, t.answered[len(t.answered)-1]), r.name)
			}
		}
	}
	return nil
}

// findHalts searches for the rate that halts the connection of each iptables row, and measures all rows at that rate and at
// haltFactor times that rate. It returns a note for each row.
func findHalts(ctx context.Context, rows []*floodRow, maxRate float64, o scenario.Options) (map[string]string, error) {
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
			if err := measureFloods(ctx, []*floodRow{peer}, []float64{middle}, maxRate, o); err != nil {
				return nil, err
			}
			if peer.share(middle).Median < haltShare {
				halted = middle
			} else {
				good = middle
			}
		}
		others := slices.DeleteFunc(slices.Clone(rows), func(r *floodRow) bool { return r.floods[halted] != nil })
		if err := measureFloods(ctx, others, []float64{halted}, maxRate, o); err != nil {
			return nil, err
		}
		more := min(haltFactor*halted, maxRate)
		notes[peer.name] = fmt.Sprintf("its connection halts at %.2f Mpps", halted/1e6)
		format := "at ten times as much %.0f %%"
		if more < haltFactor*halted {
			format = fmt.Sprintf("at the generator's most, %.1f times as much, %%.0f %%%%", more/halted)
		}
		others = slices.DeleteFunc(slices.Clone(rows), func(r *floodRow) bool { return r.floods[more] != nil })
		if err := measureFloods(ctx, others, []float64{more}, maxRate, o); err != nil {
			return nil, err
		}
		for _, r := range rows {
			if r == peer {
				continue
			}
			note := fmt.Sprintf("where %s halts, %.2f Mpps, it keeps %.0f %% of its transactions, ", peer.name, halted/1e6,
				100*r.share(halted).Median) + fmt.Sprintf(format, 100*r.share(more).Median)
			notes[r.name] = strings.TrimPrefix(notes[r.name]+"; "+note, "; ")
		}
	}
	return notes, nil
}

// floodReport makes the report of all floods.
func floodReport(rows []*floodRow, maxRate float64, notes map[string]string) *report.Report {
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
				Asked: rate / 1e6, Most: rate >= maxRate, Offered: report.NewSpread(t.offered),
				Transactions: report.NewSpread(t.answered), Share: r.share(rate), Lost: report.NewSpread(t.lost),
			})
		}
		all.Rows = append(all.Rows, row)
	}
	return all
}
