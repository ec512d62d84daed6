// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
)

// trialRow is a row at a frame length.
type trialRow struct {
	peer.Candidate
	length peer.FrameLength
}

func (r trialRow) String() string { return r.Name + "@" + r.length.String() }

// frameSize is the frame length in bytes for reports, 0 for a mix.
func (r trialRow) frameSize() int { return max(0, int(r.length)) }

// trialRows combines candidates and frame lengths. It returns the rows to measure, and reports of those whose device cannot
// be used. rows and sizes are the defaults for o.Rows and o.Sizes. Rows whose frames are too short for SCION headers are left
// out, with a line on o.Progress.
func trialRows(chosen []peer.Candidate, o Options, rows, sizes []string) (available []trialRow, absent []report.Row, err error) {
	if len(o.Rows) == 0 {
		chosen = slices.DeleteFunc(slices.Clone(chosen), func(c peer.Candidate) bool { return !slices.Contains(rows, c.Name) })
	}
	if len(o.Sizes) > 0 {
		sizes = o.Sizes
	}
	lengths, err := peer.ParseSizes(sizes)
	if err != nil {
		return nil, nil, err
	}
	least, err := peer.ShortestSCION()
	if err != nil {
		return nil, nil, err
	}
	var selected []trialRow
	for i, length := range lengths {
		if slices.Contains(lengths[:i], length) {
			continue
		}
		for _, c := range chosen {
			row := trialRow{Candidate: c, length: length}
			if c.SCION && length != peer.IMIX && int(length) < least {
				KeepLine(o.Progress, fmt.Sprintf("leaving %s out: SCION packets take at least %d bytes (--size %s)", row, least, peer.Shortest))
				continue
			}
			selected = append(selected, row)
		}
	}
	if len(selected) == 0 {
		return nil, nil, fmt.Errorf("%w --size %s: no row asked for can have such frames, SCION packets take at least %d bytes (--size %s)",
			ErrOption, strings.Join(sizes, ","), least, peer.Shortest)
	}
	missing, err := o.Missing(chosen)
	if err != nil {
		return nil, nil, err
	}
	for _, row := range selected {
		if why := missing[row.Name]; why != nil {
			absent = append(absent, report.Row{Name: row.String(), FrameSize: row.frameSize(), Note: "not measured: " + why.Error()})
			continue
		}
		available = append(available, row)
	}
	return available, absent, nil
}

// inTurns measures rows for o.Rounds rounds, each of which begins with another row. measure returns the result of row i for
// the progress.
func inTurns(ctx context.Context, rows []trialRow, o Options, measure func(i int) (result string, err error)) error {
	total := o.Rounds * len(rows)
	shown := NewSteps(o.Progress, total)
	for done := range total {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("interrupted: %w", err)
		}
		i := (done/len(rows) + done%len(rows)) % len(rows)
		step := fmt.Sprintf("%d of %d: %s", done+1, total, rows[i])
		shown.Begin(step)
		result, err := measure(i)
		if err != nil {
			return fmt.Errorf("measure %s: %w", rows[i], err)
		}
		shown.End(step+" "+result, rows[i].String()+" "+result)
	}
	return nil
}
