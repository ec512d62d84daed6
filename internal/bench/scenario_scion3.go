// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"

	"culvert/internal/bench/report"
)

// runScion3 is runVeth in a lab, whose router is another one for each row.
func runScion3(ctx context.Context, chosen []candidate, o Options) (r *report.Report, err error) {
	frames, err := UDPFrames(coldFrames, frameSize)
	if err != nil {
		return nil, err
	}
	if o.lab, err = openLabPath(o.Lab); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.lab.close()) }()
	v := vethOptions{Frames: frames, Sink: o.lab.sink, On: &o.lab.Path, CPU: LastCPU()}
	return runRates(ctx, vethRows(chosen, o, v), o, "reference")
}
