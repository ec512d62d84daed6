// SPDX-License-Identifier: Apache-2.0

package maglev

// Prime tells whether a table can have n entries: only then does every step size lead through all of them.
func Prime(n int) bool {
	if n < 2 {
		return false
	}
	for d := 2; d <= n/d; d++ {
		if n%d == 0 {
			return false
		}
	}
	return true
}

// nextPrime is the first prime from n on.
func nextPrime(n int) int {
	for !Prime(n) {
		n++
	}
	return n
}
