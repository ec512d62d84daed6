// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"culvert/internal/bench/report"
)

// runCost measures programs by themselves, each attached in a path of its own as for runVeth.
func runCost(ctx context.Context, chosen []candidate, o Options) (r *report.Report, err error) {
	frames, err := UDPFrames(coldFrames, frameSize)
	if err != nil {
		return nil, err
	}
	// The slowest of our programs takes about 300 ns for a packet, the wrapper and the empty program little.
	const costOfRun = 400 * time.Nanosecond
	c := CostOptions{Rounds: o.Rounds, Repeat: int(o.Round / costOfRun), CPU: LastCPU()}
	track := newSteps(o.Progress, o.Rounds)
	c.Progress = func(round, rounds int) {
		what := fmt.Sprintf("round %d of %d", round, rounds)
		track.begin(what)
		if round%5 != 0 && round != rounds {
			what = ""
		}
		track.end(what, "")
	}
	var subjects []Subject
	for _, row := range vethRows(chosen, o, vethOptions{Frames: frames}) {
		defer func() {
			if downErr := row.Teardown(); downErr != nil {
				err = errors.Join(err, fmt.Errorf("take %s down: %w", row.name, downErr))
			}
		}()
		fmt.Fprintf(o.Progress, "setting up %s\n", row.name)
		frames, err := row.lay()
		if err == nil {
			err = row.attach(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("set %s up: %w", row.name, err)
		}
		costed, ok := row.device.(Costed)
		if !ok {
			return nil, fmt.Errorf("set %s up: it is not an XDP program whose cost can be measured", row.name)
		}
		prog, verdict := costed.Program()
		subjects = append(subjects, Subject{Name: row.name, Program: prog, Frames: frames, From: row.path.In, Verdict: verdict})
	}
	costs, err := Cost(ctx, c, subjects...)
	if err != nil {
		return nil, err
	}
	return costReport(costs), nil
}
