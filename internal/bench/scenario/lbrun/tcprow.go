// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario"
)

// tcpRow is a balancer of connections, with its measurements round by round.
type tcpRow struct {
	name     string
	balancer connector
	bed      *tcpBed
	// rates are in connections a second, speeds in Gbit/s.
	rates, speeds []float64
}

// setup makes the bed, and verifies that connections reach the backends.
func (r *tcpRow) setup(ctx context.Context) (err error) {
	if r.bed, err = newTCPBed(); err != nil {
		return err
	}
	if err := r.balancer.place(ctx, r.bed); err != nil {
		return err
	}
	return r.bed.client.Do(r.verify)
}

// verify makes some connections, on a thread in the client's namespace, and checks where they end: at the VIP, or at addresses
// of many backends.
func (r *tcpRow) verify() error {
	ends := map[string]int{}
	for range 2 * backendCount {
		end, err := ask()
		if err != nil {
			return err
		}
		ends[end]++
	}
	if !r.balancer.spreads() {
		if ends[vip4.String()] != 2*backendCount {
			return fmt.Errorf("the balancer does not do its work: not all connections ended at the VIP but at %v", ends)
		}
		return r.verifyReached()
	}
	backends := 0
	for n := range backendCount {
		if ends[fmt.Sprintf("%s:%d", backendAddr(n), vip4.Port())] > 0 {
			backends++
		}
	}
	if len(ends) != backends || backends < backendCount/2 {
		return fmt.Errorf("the balancer does not do its work: connections ended at %v", ends)
	}
	return nil
}

// verifyReached checks that a balancer whose connections all end at the VIP has sent packets to many backends.
func (r *tcpRow) verifyReached() error {
	d, ok := r.balancer.(interface{ reached() (int, error) })
	if !ok {
		return nil
	}
	n, err := d.reached()
	if err == nil && n < backendCount/2 {
		err = fmt.Errorf("the balancer does not do its work: of %d backends %d got packets", backendCount, n)
	}
	return err
}

// measure measures one round, half of it connections and half the speed of pages without end. If record is not set the round only
// warms up. It returns the result as text.
func (r *tcpRow) measure(round time.Duration, record bool) (string, error) {
	rate, err := r.bed.during(false, round/2)
	if err != nil {
		return "", err
	}
	bytes, err := r.bed.during(true, round/2)
	if err != nil {
		return "", err
	}
	const bits = 8 / 1e9
	if record {
		r.rates, r.speeds = append(r.rates, rate), append(r.speeds, bytes*bits)
	}
	return fmt.Sprintf("%.0f connections a second, %.2f Gbit/s", rate, bytes*bits), nil
}

func (r *tcpRow) teardown() error {
	err := r.balancer.remove()
	if r.bed != nil {
		err = errors.Join(err, r.bed.Close())
	}
	return err
}

// runConnections measures the rows that balance connections, in turns.
func runConnections(ctx context.Context, available []peer.Candidate, g *group, o scenario.Options) (_ *report.Report, err error) {
	var rows []*tcpRow
	defer func() {
		for _, r := range rows {
			if downErr := r.teardown(); downErr != nil {
				err = errors.Join(err, fmt.Errorf("take %s down: %w", r.name, downErr))
			}
		}
	}()
	for _, c := range available {
		r := &tcpRow{name: c.Name + "@" + g.name, balancer: connectors()[c.Name]()}
		rows = append(rows, r)
		fmt.Fprintf(o.Progress, "setting up %s\n", r.name)
		if err := r.setup(ctx); err != nil {
			return nil, fmt.Errorf("set %s up: %w", r.name, err)
		}
	}
	track := scenario.NewSteps(o.Progress, (o.Rounds+1)*len(rows))
	for round := range o.Rounds + 1 {
		for turn := range rows {
			r := rows[(round+turn)%len(rows)]
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("interrupted: %w", err)
			}
			step := fmt.Sprintf("round %d of %d: %s", round, o.Rounds, r.name)
			if round == 0 {
				step = "warming up " + r.name
			}
			track.Begin(step)
			result, err := r.measure(o.Round, round > 0)
			if err != nil {
				return nil, fmt.Errorf("measure %s: %w", r.name, err)
			}
			track.End(strings.TrimSpace(step+" "+result), r.name+" "+result)
		}
	}
	return connectionsReport(rows, g), nil
}

// connectionsReport makes the report of rows, and compares them by connections a second.
func connectionsReport(rows []*tcpRow, g *group) *report.Report {
	all := &report.Report{Ratios: map[string]float64{}, RatioSpreads: map[string]report.Spread{}}
	for _, r := range rows {
		all.Rows = append(all.Rows, report.Row{
			Name: r.name, Valid: true,
			Connections: &report.Connections{
				Rate: report.NewSpread(r.rates), Clients: connectorCount, Speed: report.NewSpread(r.speeds), Streams: streams,
			},
			Samples: map[string][]float64{"connections_per_second": r.rates, "gbit_per_second": r.speeds},
		})
		for _, base := range rows {
			name, _, _ := strings.Cut(base.name, "@")
			if base != r && (name == "direct" || name == "haproxy") {
				spread := report.NewSpread(report.PairedRatios(r.rates, base.rates))
				all.Ratios[r.name+"/"+base.name], all.RatioSpreads[r.name+"/"+base.name] = spread.Median, spread
			}
		}
	}
	return all
}
