// SPDX-License-Identifier: Apache-2.0

package load

import "fmt"

// reachedShare is how much of the rate asked for a generator has to send for the rate to count as reached.
const reachedShare = 0.98

// Shortfall says by how much a generator has failed to reach the rate it was asked for, in packets a second; nothing
// if it has reached it, or was not asked for a rate.
func Shortfall(asked, reached float64) string {
	if asked == 0 || reached >= reachedShare*asked {
		return ""
	}
	return fmt.Sprintf("asked for %.2f Mpps, the generator reached %.2f", asked/1e6, reached/1e6)
}
