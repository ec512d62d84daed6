// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"

	"culvert/internal/bench/report"
)

// runVeth measures how many packets a second come out at the far end.
func runVeth(ctx context.Context, chosen []candidate, o Options) (*report.Report, error) {
	frames, err := UDPFrames(coldFrames, frameSize)
	if err != nil {
		return nil, err
	}
	v := vethOptions{Frames: frames, Sink: SinkOptions{MinLen: frameSize}, CPU: LastCPU()}
	return runRates(ctx, vethRows(chosen, o, v), o, "redirect", "bridge", "reference")
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
