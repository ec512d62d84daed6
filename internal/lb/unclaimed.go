// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"

	"culvert/internal/lb/lbplane"
)

// unclaimed are the words for what becomes of packets to the address of a VIP that no VIP takes.
var unclaimed = map[string]lbplane.Unclaimed{
	"": lbplane.Reject, "reject": lbplane.Reject, "drop": lbplane.Drop, "pass": lbplane.Pass,
}

// ParseUnclaimed reads "reject", "drop" or "pass"; no text is the first of them.
func ParseUnclaimed(text string) (lbplane.Unclaimed, error) {
	u, ok := unclaimed[text]
	if !ok {
		return u, fmt.Errorf("unclaimed = %q: use reject, drop or pass", text)
	}
	return u, nil
}
