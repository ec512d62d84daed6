// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"culvert/internal/bench/report"
)

// vethAgainst are the rows that others of their group are compared with.
var vethAgainst = []string{"redirect", "bridge", "reference"}

// Veth is about what comes out at the far end of a veth.
func Veth() Scenario {
	return Scenario{Name: "veth", Rounds: 10, Round: 300 * time.Millisecond, Candidates: CandidatesOf("veth"), Run: runVeth}
}

// runVeth measures how many packets a second come out at the far end, one group of rows after the other.
func runVeth(ctx context.Context, chosen []candidate, o Options) (*report.Report, error) {
	groups, err := o.groups()
	if err != nil {
		return nil, err
	}
	if groups, err = o.enoughCPUs(groups, allowedCPUs()); err != nil {
		return nil, err
	}
	if err := o.share(groups, chosen); err != nil {
		return nil, err
	}
	var rows []candidate
	for _, g := range groups {
		rows = append(rows, g.rows...)
	}
	missing, err := o.missing(rows)
	if err != nil {
		return nil, err
	}
	all := &report.Report{Ratios: map[string]float64{}, RatioSpreads: map[string]report.Spread{}}
	for i, g := range groups {
		part := o
		if i > 0 {
			part.Rounds = (o.Rounds + 1) / 2
		}
		if len(g.rows) == 0 {
			continue
		}
		there, absent := g.split(missing)
		r, err := g.run(ctx, there, part)
		if err != nil {
			return nil, err
		}
		all.Rows = append(append(all.Rows, r.Rows...), absent...)
		maps.Copy(all.Ratios, r.Ratios)
		maps.Copy(all.RatioSpreads, r.RatioSpreads)
	}
	return all, nil
}

// run measures the rows of a group.
func (g *group) run(ctx context.Context, chosen []candidate, o Options) (*report.Report, error) {
	frames, err := UDPFrames(coldFrames, g.size)
	if err != nil {
		return nil, err
	}
	o.terms.Size = g.size
	v := vethOptions{
		Frames: frames, Header: frameSize, Sink: SinkOptions{MinLen: g.size}, CPU: LastCPU(), Apart: g.cpus > 1, Size: g.size,
	}
	if v.Apart {
		o.terms.On = []int{v.CPU}
	}
	rows := vethRows(chosen, o, v)
	against := make([]string, len(vethAgainst))
	for i, name := range vethAgainst {
		against[i] = name + g.suffix()
	}
	for _, r := range rows {
		r.name += g.suffix()
		r.note = g.note(r)
	}
	return runRates(ctx, rows, o, against...)
}

// note says what is particular about a row of the group.
func (g *group) note(r *vethRow) string {
	var notes []string
	if r.note != "" {
		notes = append(notes, r.note)
	}
	if g.min {
		notes = append(notes, fmt.Sprintf("frames of %d bytes, the shortest that carry SCION and UDP headers", g.size))
	}
	from := r.generatorCPU()
	switch ref, ok := r.device.(*reference); {
	case r.opts.Apart:
		notes = append(notes, fmt.Sprintf("generator on CPU %d, device and sink on CPU %d", from, r.opts.CPU))
	case ok && len(ref.cpus) > 0:
		notes = append(notes, fmt.Sprintf("generator on CPU %d, router on CPU %d", from, ref.cpus[0]))
	case ok:
		notes = append(notes, fmt.Sprintf("generator on CPU %d, router on all", from))
	}
	return strings.Join(notes, "; ")
}

// vethRows makes rows of candidates.
func vethRows(chosen []candidate, o Options, v vethOptions) []*vethRow {
	rows := make([]*vethRow, len(chosen))
	for i, c := range chosen {
		rows[i] = &vethRow{name: c.name, alone: c.alone, paced: c.paced, note: c.note, opts: v}
		if c.device != nil {
			rows[i].device = c.device(o.Terms())
		}
	}
	return rows
}

// runRates measures rows in turn, and compares them with those named in against.
func runRates(ctx context.Context, rows []*vethRow, o Options, against ...string) (*report.Report, error) {
	all := make([]Row, len(rows))
	for i, r := range rows {
		all[i] = r
	}
	samples, err := runRows(ctx, all, RunOptions{Rounds: o.Rounds, Round: o.Round, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	return rateReport(all, samples, against), nil
}
