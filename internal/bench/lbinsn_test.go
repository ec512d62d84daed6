// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"strings"
	"testing"

	"culvert/internal/testbed"
)

// culvert's load balancers whose instructions are counted balance all packets, which are those that the name says. With other
// packets that is found out.
func TestInsnCulverts(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	for _, c := range insnCulverts() {
		for _, other := range []bool{false, true} {
			row := vethRows([]candidate{c}, Options{}, vethOptions{CPU: LastCPU()})[0]
			d := row.device.(*insnCulvert)
			d.shape(&row.opts)
			d.fresh = d.fresh != other
			err := row.Setup(t.Context())
			if err == nil {
				_, err = row.gen.Run(t.Context(), 100)
			}
			if err == nil {
				seen, settleErr := row.sink.Settled(settleQuiet, settleLimit)
				if seen.Packets != 100 {
					t.Errorf("%s: %d packets of 100 arrived", c.name, seen.Packets)
				}
				err = settleErr
			}
			if err == nil {
				if wrong := d.check(); other != (wrong != nil) || other && !strings.Contains(wrong.Error(), "not those that are to be counted") {
					t.Errorf("%s, with other packets %t: %v", c.name, other, wrong)
				}
			}
			if err = errors.Join(err, row.Teardown()); err != nil {
				t.Error(err)
			}
		}
	}
}
