// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"culvert/internal/bench/report"
)

// Cost_ is about programs by themselves.
func Cost_() Scenario {
	return Scenario{Name: "cost", Rounds: 21, Round: 40 * time.Millisecond, Candidates: CandidatesOf("cost"), Run: runCost}
}

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
		subject, err := row.subject(ctx)
		if err != nil {
			return nil, fmt.Errorf("set %s up: %w", row.name, err)
		}
		subjects = append(subjects, subject)
	}
	costs, err := Cost(ctx, c, subjects...)
	if err != nil {
		return nil, err
	}
	return costReport(costs), nil
}

// subject lays the row's path, attaches its device and returns the program that is on it then.
func (r *vethRow) subject(ctx context.Context) (Subject, error) {
	frames, err := r.lay()
	if err == nil {
		err = r.attach(ctx)
	}
	if err != nil {
		return Subject{}, err
	}
	costed, ok := r.device.(Costed)
	if !ok {
		return Subject{}, errors.New("it is not an XDP program whose cost can be measured")
	}
	prog, verdict := costed.Program()
	s := Subject{Name: r.name, Program: prog, Frames: frames, From: r.path.In, Verdict: verdict}
	if d, ok := r.device.(interface{ learns() bool }); ok {
		s.Learns = d.learns()
	}
	return s, nil
}

// didItsWork asks a device that can tell whether all packets were of the kind that the row is about.
func didItsWork(row *vethRow) error {
	if d, ok := row.device.(interface{ check() error }); ok {
		return d.check()
	}
	return nil
}
