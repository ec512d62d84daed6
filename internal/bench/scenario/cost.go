// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
)

// Cost is the scenario that measures the cost of programs by themselves.
func Cost() Scenario {
	return Scenario{Name: "cost", Rounds: 21, Round: 40 * time.Millisecond, Candidates: peer.CandidatesOf("cost"), Run: runCost}
}

// runCost measures the cost of programs by themselves. Each is attached in a path of its own, as in runVeth.
func runCost(ctx context.Context, chosen []peer.Candidate, o Options) (r *report.Report, err error) {
	frames, err := load.UDPFrames(peer.ColdFrames, peer.FrameSize)
	if err != nil {
		return nil, err
	}
	// The slowest program takes about 300 ns for a packet. The wrapper and the empty program take little.
	const costOfRun = 400 * time.Nanosecond
	c := load.CostOptions{Rounds: o.Rounds, Repeat: int(o.Round / costOfRun), CPU: load.LastCPU()}
	track := NewSteps(o.Progress, o.Rounds)
	c.Progress = func(round, rounds int) {
		step := fmt.Sprintf("round %d of %d", round, rounds)
		track.Begin(step)
		if round%5 != 0 && round != rounds {
			step = ""
		}
		track.End(step, "")
	}
	var subjects []load.Subject
	for _, row := range VethRows(chosen, o, VethOptions{Frames: frames}) {
		defer func() {
			if downErr := row.Teardown(); downErr != nil {
				err = errors.Join(err, fmt.Errorf("take %s down: %w", row.Label, downErr))
			}
		}()
		fmt.Fprintf(o.Progress, "setting up %s\n", row.Label)
		subject, err := row.Subject(ctx)
		if err != nil {
			return nil, fmt.Errorf("set %s up: %w", row.Label, err)
		}
		subjects = append(subjects, subject)
	}
	costs, err := load.Cost(ctx, c, subjects...)
	if err != nil {
		return nil, err
	}
	return CostReport(costs), nil
}

// Subject builds the row's path, attaches its device and returns the device's program with its packets.
func (r *VethRow) Subject(ctx context.Context) (load.Subject, error) {
	frames, err := r.BuildPath()
	if err == nil {
		err = r.Attach(ctx)
	}
	if err != nil {
		return load.Subject{}, err
	}
	device, ok := r.Device.(peer.SingleProgram)
	if !ok {
		return load.Subject{}, errors.New("it is not an XDP program whose cost can be measured")
	}
	prog, verdict := device.Program()
	s := load.Subject{Name: r.Label, Program: prog, Frames: frames, From: r.Path.In, Verdict: verdict}
	if d, ok := r.Device.(interface{ Learns() bool }); ok {
		s.Learns = d.Learns()
	}
	return s, nil
}

// CheckDevice returns an error if the row's device knows that packets were not of the kind that the row is about.
func CheckDevice(row *VethRow) error {
	if d, ok := row.Device.(interface{ Check() error }); ok {
		return d.Check()
	}
	return nil
}
