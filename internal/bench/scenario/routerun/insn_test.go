// SPDX-License-Identifier: Apache-2.0

package routerun

import (
	"errors"
	"strings"
	"testing"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario"
	"culvert/internal/testbed"
)

// Each router whose instructions are counted forwards all packets, by itself and end to end. culvert with a mirror uses only
// that.
func TestInsnRoutes(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	frames, err := load.UDPFrames(256, peer.FrameSize)
	if err != nil {
		t.Fatal(err)
	}
	v := scenario.VethOptions{Frames: frames, CPU: load.LastCPU()}
	programs, paths := InsnRouters()
	for _, c := range programs {
		t.Run("cost/"+c.Name, func(t *testing.T) {
			row := scenario.VethRows([]peer.Candidate{c}, scenario.Options{}, v)[0]
			s, err := row.Subject(t.Context())
			if err == nil {
				_, err = load.Cost(t.Context(), load.CostOptions{Rounds: 1, Repeat: 10, CPU: v.CPU}, s)
			}
			several := c.Name == "route-multi4" || c.Name == "route-multi6"
			if err == nil && (strings.HasPrefix(c.Name, "route-mirror") || several) {
				diverted, divertedErr := row.Device.(*insnRouter).router.(interface {
					Diverted() (map[string]uint64, error)
				}).Diverted()
				for where, n := range diverted {
					// Of several next hops the kernel chooses once for each flow.
					if n > 0 && !(several && n <= uint64(len(frames))) {
						t.Errorf("%d packets were %s", n, where)
					}
				}
				err = divertedErr
			}
			if err = errors.Join(err, row.Teardown()); err != nil {
				t.Error(err)
			}
		})
	}
	for _, c := range paths {
		t.Run("path/"+c.Name, func(t *testing.T) {
			row := scenario.VethRows([]peer.Candidate{c}, scenario.Options{}, v)[0]
			row.Device.(*insnRouter).SetTraffic(&row.Opts)
			err := row.Setup(t.Context())
			if err == nil {
				_, err = row.Gen.Run(t.Context(), 100)
			}
			if err == nil {
				seen, settleErr := row.Sink.Settled(scenario.SettleQuiet, scenario.SettleLimit)
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
