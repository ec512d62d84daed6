// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
)

// Scion3 is the scenario that measures the routers of a lab.
func Scion3() Scenario {
	return Scenario{Name: "scion3", Rounds: 3, Round: time.Second, Candidates: peer.CandidatesOf("scion3"), Run: runScion3}
}

// runScion3 measures the same as runVeth in a lab. Each row starts another router there.
func runScion3(ctx context.Context, chosen []peer.Candidate, o Options) (r *report.Report, err error) {
	frames, err := load.UDPFrames(peer.ColdFrames, peer.FrameSize)
	if err != nil {
		return nil, err
	}
	if o.device.Lab, err = peer.OpenLabPath(o.Lab); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.device.Lab.Close()) }()
	v := VethOptions{Frames: frames, Sink: o.device.Lab.SinkOptions, Existing: &o.device.Lab.Path, CPU: load.LastCPU()}
	return runRates(ctx, VethRows(chosen, o, v), o, "reference")
}
