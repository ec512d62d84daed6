// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"

	"culvert/internal/datapath"
	"culvert/internal/lb/lbview"
	"culvert/internal/show/text"
)

// Balance is the load balancer of a data plane: see 'culvert lb show' for more.
type Balance struct {
	lbview.Counts
}

func (r *Router) describeBalance(inst *datapath.Instance) error {
	c, err := lbview.Count(inst)
	if err == nil && c != nil {
		r.Balance = &Balance{*c}
	}
	return err
}

func (b *Balance) line() string {
	return fmt.Sprintf("  balance  %s  flow table for %s, %s  in use about %s", b.Counts, text.Grouped(uint64(b.Flows)),
		text.ShortBytes(b.Memory), text.Grouped(b.Used))
}
