// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"fmt"
	"io"
	"time"

	"culvert/internal/show/screen"
)

const lineFormat = "%-8s  %-20s  %-15s  %-7s  %-22s  %12s  %14s  %14s%s\n"

// watchLines writes, after each interval, a line for each reason whose counter has changed. With a count it is an error if the only
// interface to show never was there.
func watchLines(ctx context.Context, o WatchOptions, last sample, look func() (sample, error)) error {
	explained := ""
	if o.Verbose {
		explained = gap + "EXPLAINED"
	}
	_, err := fmt.Fprintf(o.Out, lineFormat,
		"TIME", "ROUTER", "INTERFACE", "VERDICT", "REASON", "PACKETS/S", "BYTES/S", "PACKETS", explained)
	if err != nil {
		return err
	}
	seen := last.attached()
	err = screen.Every(ctx, o.Interval, o.Count, func() error {
		now, err := look()
		if err != nil {
			return err
		}
		all := flows(last, now)
		last, seen = now, seen || now.attached()
		return writeChanged(o.Out, o.Verbose, now.at, all)
	})
	if err == nil && o.Count > 0 && o.Interface != "" && !seen && ctx.Err() == nil {
		return o.neverAttached()
	}
	return err
}

// gap separates the sentence from the other columns.
const gap = "  "

// writeChanged writes a line for each reason whose counter has changed. verbose explains the reasons.
func writeChanged(out io.Writer, verbose bool, at time.Time, all []flow) error {
	for _, f := range all {
		for _, w := range f.rows {
			if w.delta == 0 {
				continue
			}
			bytes := "-"
			if w.verdict != verdictLost {
				bytes = fmt.Sprintf("%.0f", w.byteRate)
			}
			explained := ""
			if verbose && w.sentence != "" {
				explained = gap + w.sentence
			}
			_, err := fmt.Fprintf(out, lineFormat, at.Format(time.TimeOnly), f.routerName(), f.key.iface,
				w.verdict, w.name, fmt.Sprintf("%.1f", w.packetRate), bytes, fmt.Sprint(w.packets), explained)
			if err != nil {
				return err
			}
		}
	}
	return nil
}
