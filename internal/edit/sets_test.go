// SPDX-License-Identifier: Apache-2.0

package edit

import "testing"

// TestLooksLikeNetwork has entries that are one address and may have been meant as a network, and others.
func TestLooksLikeNetwork(t *testing.T) {
	for entry, want := range map[string]bool{
		"192.0.2.0":    true,
		"192.0.2.1":    false,
		"192.0.2.0/24": false,
		"2001:db8::":   false,
		"x":            false,
	} {
		if got := looksLikeNetwork(entry); got != want {
			t.Errorf("%s: got %t, want %t", entry, got, want)
		}
	}
}
