// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"time"

	"culvert/internal/bench/report"
)

// Scion3 is about the routers of a lab.
func Scion3() Scenario {
	return Scenario{Name: "scion3", Rounds: 3, Round: time.Second, Candidates: CandidatesOf("scion3"), Run: runScion3}
}

// runScion3 is runVeth in a lab, whose router is another one for each row.
func runScion3(ctx context.Context, chosen []candidate, o Options) (r *report.Report, err error) {
	frames, err := UDPFrames(coldFrames, frameSize)
	if err != nil {
		return nil, err
	}
	if o.terms.Lab, err = openLabPath(o.Lab); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.terms.Lab.close()) }()
	v := vethOptions{Frames: frames, Sink: o.terms.Lab.sink, On: &o.terms.Lab.Path, CPU: LastCPU()}
	return runRates(ctx, vethRows(chosen, o, v), o, "reference")
}
