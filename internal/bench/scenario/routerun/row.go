// SPDX-License-Identifier: Apache-2.0

package routerun

import (
	"context"
	"errors"
	"time"

	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario"
)

// Row is a device under test on a bed, which it shares with other rows, with the packets of a group.
type Row struct {
	scenario.VethRow
	group *group
	bed   *bed
	// updates counts the changes of routes in all rounds but the first, which only warms up. warm is set after it.
	updates uint64
	warm    bool
}

// newRow makes a row of a candidate whose device the bed has prepared.
func newRow(c peer.Candidate, g *group, b *bed, cpu int) *Row {
	return &Row{
		VethRow: scenario.VethRow{
			Label: c.Name + "@" + g.String(), Device: b.devices[c.Name], Note: c.Note,
			Opts: scenario.VethOptions{CPU: cpu, Size: frameLen}, Path: b.path, Sink: b.sink, Gen: g.gen, Refused: b.refused,
		},
		group: g, bed: b,
	}
}

// Setup does nothing, because the bed exists already.
func (*Row) Setup(context.Context) error { return nil }

// Teardown does nothing, because other rows use the bed.
func (*Row) Teardown() error { return nil }

// leftToKernel describes packets that a device should have forwarded itself (see Diverted).
const leftToKernel = "left to the kernel"

// Run measures one round.
func (r *Row) Run(ctx context.Context, round time.Duration) (s scenario.Sample, err error) {
	defer func() { err = errors.Join(err, r.Detach()) }()
	if err := r.Attach(ctx); err != nil {
		return s, err
	}
	return scenario.NoteDiverted(r.Device, func() (s scenario.Sample, err error) {
		if r.group.churn {
			s, err = r.underChurn(ctx, churnRounds*round)
		} else {
			r.Gen.Pace(0)
			s, err = r.Send(ctx, round)
		}
		r.warm = err == nil
		return s, err
	})
}

// Describe adds the routes, and the time and memory of the device's mirror.
func (r *Row) Describe(row *report.Row) {
	r.VethRow.Describe(row)
	row.Frames = len(r.Gen.Frames())
	t := &report.Routes{
		Routes: len(*r.bed.table.of(r.group.v6)), Destinations: r.group.addresses, Updates: r.updates,
		Install: r.bed.install.Seconds(),
	}
	if d, ok := r.Device.(mirroring); ok {
		d.mirrored(t)
	}
	row.Routes = t
}

// mirroring is a device with a copy of the kernel's routes.
type mirroring interface {
	// mirrored sets the fields for the time until the copy was current, and for its size.
	mirrored(r *report.Routes)
}
