// SPDX-License-Identifier: Apache-2.0

package scion

import "testing"

// TestFragmentByDefault wants packets that are too big to be sent as by the reference unless the table says otherwise, also where no table
// was read, as with the router's own file alone.
func TestFragmentByDefault(t *testing.T) {
	for text, want := range map[string]bool{"": true, TooBigFragment: true, TooBigAnswer: false} {
		if got := (&Table{TooBig: text}).Fragment(); got != want {
			t.Errorf("too_big %q: in fragments %v, want %v", text, got, want)
		}
	}
}
