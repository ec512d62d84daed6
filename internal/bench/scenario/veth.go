// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
)

// vethAgainst are the rows that the other rows of their group are compared with.
var vethAgainst = []string{"redirect", "bridge", "reference"}

// Veth is the scenario that measures throughput between veth pairs.
func Veth() Scenario {
	return Scenario{Name: "veth", Rounds: 10, Round: 300 * time.Millisecond, Candidates: peer.CandidatesOf("veth"), Run: runVeth}
}

// runVeth measures the rate at which packets arrive at the sink, one group of rows after the other.
func runVeth(ctx context.Context, chosen []peer.Candidate, o Options) (*report.Report, error) {
	groups, err := o.groups()
	if err != nil {
		return nil, err
	}
	if groups, err = o.enoughCPUs(groups, load.AllowedCPUs()); err != nil {
		return nil, err
	}
	if err := o.share(groups, chosen); err != nil {
		return nil, err
	}
	var rows []peer.Candidate
	for _, g := range groups {
		rows = append(rows, g.rows...)
	}
	missing, err := o.Missing(rows)
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
		available, absent := g.split(missing)
		r, err := g.run(ctx, available, part)
		if err != nil {
			return nil, err
		}
		all.Rows = append(append(all.Rows, r.Rows...), absent...)
		maps.Copy(all.Ratios, r.Ratios)
		maps.Copy(all.RatioSpreads, r.RatioSpreads)
	}
	return all, nil
}

// run measures the chosen rows of the group.
func (g *group) run(ctx context.Context, chosen []peer.Candidate, o Options) (*report.Report, error) {
	frames, err := load.UDPFrames(peer.ColdFrames, g.size)
	if err != nil {
		return nil, err
	}
	o.device.Size = g.size
	v := VethOptions{
		Frames: frames, Header: peer.FrameSize, Sink: load.SinkOptions{MinLen: g.size}, CPU: load.LastCPU(), SeparateCPU: g.cpus > 1, Size: g.size,
	}
	if v.SeparateCPU {
		o.device.CPUs = []int{v.CPU}
	}
	rows := VethRows(chosen, o, v)
	against := make([]string, len(vethAgainst))
	for i, name := range vethAgainst {
		against[i] = name + g.suffix()
	}
	for _, r := range rows {
		r.Label += g.suffix()
		r.Note = g.note(r)
	}
	return runRates(ctx, rows, o, against...)
}

// note is the note of a row of the group.
func (g *group) note(r *VethRow) string {
	var notes []string
	if r.Note != "" {
		notes = append(notes, r.Note)
	}
	if g.min {
		notes = append(notes, fmt.Sprintf("frames of %d bytes, the shortest that carry SCION and UDP headers", g.size))
	}
	from := r.generatorCPU()
	switch ref, ok := r.Device.(*peer.Reference); {
	case r.Opts.SeparateCPU:
		notes = append(notes, fmt.Sprintf("generator on CPU %d, device and sink on CPU %d", from, r.Opts.CPU))
	case ok && len(ref.CPUs) > 0:
		notes = append(notes, fmt.Sprintf("generator on CPU %d, router on CPU %d", from, ref.CPUs[0]))
	case ok:
		notes = append(notes, fmt.Sprintf("generator on CPU %d, router on all", from))
	}
	return strings.Join(notes, "; ")
}

// VethRows makes rows of candidates.
func VethRows(chosen []peer.Candidate, o Options, v VethOptions) []*VethRow {
	rows := make([]*VethRow, len(chosen))
	for i, c := range chosen {
		rows[i] = &VethRow{Label: c.Name, Exclusive: c.Exclusive, paced: c.Paced, Note: c.Note, Opts: v}
		if c.Device != nil {
			rows[i].Device = c.Device(o.DeviceOptions())
		}
	}
	return rows
}

// runRates measures rows in turns, and compares them with those named in against.
func runRates(ctx context.Context, rows []*VethRow, o Options, against ...string) (*report.Report, error) {
	all := make([]Row, len(rows))
	for i, r := range rows {
		all[i] = r
	}
	samples, err := RunRows(ctx, all, RunOptions{Rounds: o.Rounds, Round: o.Round, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	return RateReport(all, samples, against), nil
}
