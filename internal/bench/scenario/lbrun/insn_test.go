// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"errors"
	"strings"
	"testing"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario"
	"culvert/internal/testbed"
)

// culvert's load balancers balance all packets, and Check confirms that the packets are of the kind that the row is about. With
// packets of the other kind Check fails.
func TestInsnCulverts(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	for _, c := range InsnCulverts() {
		for _, other := range []bool{false, true} {
			row := scenario.VethRows([]peer.Candidate{c}, scenario.Options{}, scenario.VethOptions{CPU: load.LastCPU()})[0]
			d := row.Device.(*insnCulvert)
			d.SetTraffic(&row.Opts)
			d.fresh = d.fresh != other
			err := row.Setup(t.Context())
			if err == nil {
				_, err = row.Gen.Run(t.Context(), 100)
			}
			if err == nil {
				seen, settleErr := row.Sink.Settled(scenario.SettleQuiet, scenario.SettleLimit)
				if seen.Packets != 100 {
					t.Errorf("%s: %d packets of 100 arrived", c.Name, seen.Packets)
				}
				err = settleErr
			}
			if err == nil {
				if wrong := d.Check(); other != (wrong != nil) || other && !strings.Contains(wrong.Error(), "not those that are to be counted") {
					t.Errorf("%s, with other packets %t: %v", c.Name, other, wrong)
				}
			}
			if err = errors.Join(err, row.Teardown()); err != nil {
				t.Error(err)
			}
		}
	}
}
