// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"testing"

	"culvert/internal/testbed"
)

// The dearest packets of each stage go the way that is dear.
func TestInsnDear(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	frames, err := UDPFrames(256, frameSize)
	if err != nil {
		t.Fatal(err)
	}
	v := vethOptions{Frames: frames, CPU: LastCPU()}
	for _, c := range insnDear() {
		t.Run(c.name, func(t *testing.T) {
			row := vethRows([]candidate{c}, Options{}, v)[0]
			s, err := row.subject(t.Context())
			if err == nil {
				_, err = Cost(t.Context(), CostOptions{Rounds: 1, Repeat: 64, Checked: 64, CPU: v.CPU}, s)
			}
			if err == nil {
				err = didItsWork(row)
			}
			if err = errors.Join(err, row.Teardown()); err != nil {
				t.Error(err)
			}
		})
	}
}
