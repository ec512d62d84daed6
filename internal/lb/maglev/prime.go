// SPDX-License-Identifier: Apache-2.0

package maglev

// Prime reports whether n is prime. Only in a table of a prime size does every step size visit all entries.
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

// nextPrime returns the smallest prime that is not less than n.
func nextPrime(n int) int {
	for !Prime(n) {
		n++
	}
	return n
}
