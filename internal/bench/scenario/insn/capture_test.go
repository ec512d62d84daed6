// SPDX-License-Identifier: Apache-2.0

package insn

import (
	"errors"
	"testing"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario"
	"culvert/internal/testbed"
)

// Packets go the same way while they are captured or sampled. The capture shows those that its expression matches and no others, and
// all are sampled or none.
func TestInsnCaptures(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	frames, err := load.UDPFrames(256, peer.FrameSize)
	if err != nil {
		t.Fatal(err)
	}
	v := scenario.VethOptions{Frames: frames, CPU: load.LastCPU()}
	for _, c := range append(captures(), sampled()...) {
		t.Run(c.Name, func(t *testing.T) {
			row := scenario.VethRows([]peer.Candidate{c}, scenario.Options{}, v)[0]
			s, err := row.Subject(t.Context())
			if err == nil {
				_, err = load.Cost(t.Context(), load.CostOptions{Rounds: 1, Repeat: 64, Checked: 64, CPU: v.CPU}, s)
			}
			if err == nil {
				err = scenario.CheckDevice(row)
			}
			if err = errors.Join(err, row.Teardown()); err != nil {
				t.Error(err)
			}
		})
	}
}
