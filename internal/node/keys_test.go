// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	"culvert/internal/datapath"
)

func TestRemovalLoss(t *testing.T) {
	one := []datapath.KeyInfo{{Index: 1, ID: "aa"}}
	two := []datapath.KeyInfo{{Index: 0, ID: "aa"}, {Index: 1, ID: "bb"}}
	for _, tc := range []struct {
		name  string
		keys  []datapath.KeyInfo
		index int
		own   string
		role  string
	}{
		{"no key there", one, 0, "aa", ""},
		{"the only one, no process", one, 1, "", "the only one"},
		{"the only one, the process's", one, 1, "aa", "the only one"},
		{"the only one, not the process's", one, 1, "cc", "the only one"},
		{"one of two, no process", two, 0, "", ""},
		{"one of two, the process's", two, 0, "aa", "the one that the serving process has"},
		{"one of two, not the process's", two, 1, "aa", ""},
	} {
		got := ""
		if l := removalLoss(tc.keys, tc.index, tc.own); l != nil {
			got = l.role
		}
		if got != tc.role {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.role)
		}
	}
}
