// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"

	"culvert/internal/lb/lbplane"
)

// unclaimed has the values of the key unclaimed in [lb].
var unclaimed = map[string]lbplane.Unclaimed{
	"": lbplane.Reject, "reject": lbplane.Reject, "drop": lbplane.Drop, "pass": lbplane.Pass,
}

// ParseUnclaimed parses "reject", "drop" or "pass". An empty text means reject.
func ParseUnclaimed(text string) (lbplane.Unclaimed, error) {
	u, ok := unclaimed[text]
	if !ok {
		return u, fmt.Errorf("unclaimed = %q: use reject, drop or pass", text)
	}
	return u, nil
}

// UnclaimedWord returns what ParseUnclaimed parses, "" for reject, the default.
func UnclaimedWord(u lbplane.Unclaimed) string {
	for word, value := range unclaimed {
		if value == u && u != lbplane.Reject {
			return word
		}
	}
	return ""
}
