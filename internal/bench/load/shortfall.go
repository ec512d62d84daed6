// SPDX-License-Identifier: Apache-2.0

package load

import "fmt"

// reachedShare is the share of the rate asked for that a generator has to reach.
const reachedShare = 0.98

// Shortfall describes by how much a generator has missed the rate it was asked for. Both rates are in packets a second. It is
// empty if the rate was reached or asked is 0.
func Shortfall(asked, reached float64) string {
	if asked == 0 || reached >= reachedShare*asked {
		return ""
	}
	return fmt.Sprintf("asked for %.2f Mpps, the generator reached %.2f", asked/1e6, reached/1e6)
}
