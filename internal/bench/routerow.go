// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"time"

	"culvert/internal/bench/report"
)

// routeRow is a device under test on a bed that it shares with others, with the packets of a group.
type routeRow struct {
	vethRow
	group *routeGroup
	bed   *routeBed
	// updates counts the changes of routes during the rounds, of which the first is only to warm up.
	updates uint64
	warm    bool
}

// newRouteRow makes a row of a candidate that the bed has a device of.
func newRouteRow(c candidate, g *routeGroup, b *routeBed, cpu int) *routeRow {
	return &routeRow{
		vethRow: vethRow{
			name: c.name + "@" + g.String(), device: b.devices[c.name], note: c.note,
			opts: vethOptions{CPU: cpu, Size: routeFrame}, path: b.path, sink: b.sink, gen: g.gen, refused: b.refused,
		},
		group: g, bed: b,
	}
}

// Setup has nothing to do: the bed is there.
func (*routeRow) Setup(context.Context) error { return nil }

// Teardown leaves the bed to others.
func (*routeRow) Teardown() error { return nil }

// leftToKernel is what became of packets that a device should forward by itself and did not.
const leftToKernel = "left to the kernel"

// Run measures one round.
func (r *routeRow) Run(ctx context.Context, round time.Duration) (s Sample, err error) {
	defer func() { err = errors.Join(err, r.detach()) }()
	if err := r.attach(ctx); err != nil {
		return s, err
	}
	return noteAside(r.device, func() (s Sample, err error) {
		if r.group.churn {
			s, err = r.underChurn(ctx, churnRounds*round)
		} else {
			r.gen.Pace(0)
			s, err = r.send(ctx, round)
		}
		r.warm = err == nil
		return s, err
	})
}

// describe says what the routes are, and what the device took to have them.
func (r *routeRow) describe(row *report.Row) {
	r.vethRow.describe(row)
	row.Frames = len(r.gen.Frames())
	t := &report.Routes{
		Routes: len(*r.bed.table.of(r.group.v6)), Destinations: r.group.addresses, Updates: r.updates,
		Install: r.bed.install.Seconds(),
	}
	if d, ok := r.device.(mirroring); ok {
		d.mirrored(t)
	}
	row.Routes = t
}

// mirroring is a device with a copy of the kernel's routes.
type mirroring interface {
	// mirrored fills in how long it took to make, and how large it is.
	mirrored(r *report.Routes)
}
