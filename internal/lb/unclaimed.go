// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"

	"culvert/internal/datapath"
)

// unclaimed are the words for what becomes of packets to the address of a VIP that no VIP takes.
var unclaimed = map[string]datapath.BalanceUnclaimed{
	"": datapath.BalanceReject, "reject": datapath.BalanceReject, "drop": datapath.BalanceDrop, "pass": datapath.BalancePass,
}

// ParseUnclaimed reads "reject", "drop" or "pass"; no text is the first of them.
func ParseUnclaimed(text string) (datapath.BalanceUnclaimed, error) {
	u, ok := unclaimed[text]
	if !ok {
		return u, fmt.Errorf("unclaimed = %q: use reject, drop or pass", text)
	}
	return u, nil
}
