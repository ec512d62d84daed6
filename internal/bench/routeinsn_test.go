// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"strings"
	"testing"

	"culvert/internal/testbed"
)

// Each router that instructions are counted of forwards all of its packets, by itself and from end to end, and culvert
// does so by its mirror where it has one.
func TestInsnRoutes(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	frames, err := UDPFrames(256, frameSize)
	if err != nil {
		t.Fatal(err)
	}
	v := vethOptions{Frames: frames, CPU: LastCPU()}
	programs, paths := insnRoutes()
	for _, c := range programs {
		t.Run("cost/"+c.name, func(t *testing.T) {
			row := vethRows([]candidate{c}, Options{}, v)[0]
			s, err := row.subject(t.Context())
			if err == nil {
				_, err = Cost(t.Context(), CostOptions{Rounds: 1, Repeat: 10, CPU: v.CPU}, s)
			}
			if err == nil && strings.HasPrefix(c.name, "route-mirror") {
				aside, asideErr := row.device.(*insnRoute).router.(interface {
					Aside() (map[string]uint64, error)
				}).Aside()
				for where, n := range aside {
					if n > 0 {
						t.Errorf("%d packets were %s", n, where)
					}
				}
				err = asideErr
			}
			if err = errors.Join(err, row.Teardown()); err != nil {
				t.Error(err)
			}
		})
	}
	for _, c := range paths {
		t.Run("path/"+c.name, func(t *testing.T) {
			row := vethRows([]candidate{c}, Options{}, v)[0]
			row.device.(*insnRoute).shape(&row.opts)
			err := row.Setup(t.Context())
			if err == nil {
				_, err = row.gen.Run(t.Context(), 100)
			}
			if err == nil {
				seen, settleErr := row.sink.Settled(settleQuiet, settleLimit)
				if seen.Packets != 100 {
					t.Errorf("%d packets of 100 arrived", seen.Packets)
				}
				err = settleErr
			}
			if err = errors.Join(err, row.Teardown()); err != nil {
				t.Error(err)
			}
		})
	}
}
