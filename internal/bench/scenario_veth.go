// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"culvert/internal/bench/report"
)

// vethAgainst are the rows that others of their group are compared with.
var vethAgainst = []string{"redirect", "bridge", "reference"}

// runVeth measures how many packets a second come out at the far end, one group of rows after the other.
func runVeth(ctx context.Context, chosen []candidate, o Options) (*report.Report, error) {
	groups, err := o.groups()
	if err != nil {
		return nil, err
	}
	if groups, err = o.enoughCPUs(groups); err != nil {
		return nil, err
	}
	chosen, absent, err := o.available(chosen)
	if err != nil {
		return nil, err
	}
	least, err := shortestSCION()
	if err != nil {
		return nil, err
	}
	all := &report.Report{Ratios: map[string]float64{}}
	for i, g := range groups {
		rows := g.of(chosen, len(o.Rows) > 0, least)
		if len(rows) == 0 {
			if len(o.Sizes) > 0 {
				return nil, fmt.Errorf("%w rows with frames of %d bytes among those asked for: SCION packets take at "+
					"least %d (--size %s)", ErrUnknown, g.size, least, shortest)
			}
			continue
		}
		part := o
		if i > 0 {
			part.Rounds = (o.Rounds + 1) / 2
		}
		r, err := g.run(ctx, rows, part)
		if err != nil {
			return nil, err
		}
		all.Rows = append(all.Rows, r.Rows...)
		maps.Copy(all.Ratios, r.Ratios)
	}
	all.Rows = append(all.Rows, absent...)
	return all, nil
}

// run measures the rows of a group.
func (g group) run(ctx context.Context, chosen []candidate, o Options) (*report.Report, error) {
	frames, err := UDPFrames(coldFrames, g.size)
	if err != nil {
		return nil, err
	}
	o.size = g.size
	v := vethOptions{
		Frames: frames, Header: frameSize, Sink: SinkOptions{MinLen: g.size}, CPU: LastCPU(), Apart: g.cpus > 1, Size: g.size,
	}
	if v.Apart {
		o.cpus = []int{v.CPU}
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
func (g group) note(r *vethRow) string {
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
			rows[i].device = c.device(o)
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
