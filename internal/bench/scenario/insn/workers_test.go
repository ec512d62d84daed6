// SPDX-License-Identifier: Apache-2.0

package insn

import (
	"context"
	"errors"
	"testing"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario"
	"culvert/internal/testbed"
)

// The packets of each row go through the queue of a worker, or are processed at once, as the row says.
func TestInsnWorkers(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	frames, err := load.UDPFrames(512, peer.FrameSize)
	if err != nil {
		t.Fatal(err)
	}
	v := scenario.VethOptions{Frames: frames, Sink: load.SinkOptions{MinLen: peer.FrameSize}, CPU: load.LastCPU(), Size: peer.FrameSize}
	run := func(kind string, c peer.Candidate, count func(context.Context, *scenario.VethRow) error) {
		t.Run(kind+c.Name, func(t *testing.T) {
			row := scenario.VethRows([]peer.Candidate{c}, scenario.Options{}, v)[0]
			row.Device.(trafficSetter).SetTraffic(&row.Opts)
			err := count(t.Context(), row)
			if err == nil { // the other way the row would be of something else
				d := spreadOf(row.Device)
				d.queued = !d.queued
				if d.Check() == nil {
					t.Error("nobody would notice if the packets went the other way")
				}
			}
			if err = errors.Join(err, row.Teardown()); err != nil {
				t.Error(err)
			}
		})
	}
	for _, c := range workerPrograms() {
		run("cost/", c, func(ctx context.Context, row *scenario.VethRow) error {
			s, err := row.Subject(ctx)
			if err == nil {
				_, err = load.Cost(ctx, load.CostOptions{Rounds: 1, Repeat: 64, Checked: 64, CPU: v.CPU}, s)
			}
			if err == nil {
				err = scenario.CheckDevice(row)
			}
			return err
		})
	}
	for _, c := range workerPaths() {
		run("path/", c, func(ctx context.Context, row *scenario.VethRow) error {
			got, err := countRounds(ctx, row, 1)
			if err == nil && *got.Instructions <= 0 {
				t.Errorf("it takes %f for a packet", *got.Instructions)
			}
			return err
		})
	}
}

func spreadOf(d peer.Device) *spreading {
	if part, ok := d.(timed); ok {
		return part.spreading
	}
	return d.(*spreading)
}
