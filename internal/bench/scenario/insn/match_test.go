// SPDX-License-Identifier: Apache-2.0

package insn

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"culvert/internal/bench/load"
)

// TestMatch has each row once, in the order of patterns, and refuses what is of no row.
func TestMatch(t *testing.T) {
	for _, c := range []struct{ patterns, want string }{
		{"", ""},
		{"cost/lb-new cost/lb-known*", "cost/lb-new cost/lb-known cost/lb-known-gue cost/lb-known-l2 cost/lb-known6"},
		{"path/bridge path/brid*", "path/bridge"},
	} {
		got, err := Match(strings.Fields(c.patterns))
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, error %v, want %s", c.patterns, got, err, c.want)
		}
	}
	if got, err := Match([]string{"cost/*", "path/*"}); err != nil || len(got) != len(Rows()) {
		t.Errorf("both kinds have %d of %d rows, error %v", len(got), len(Rows()), err)
	}
	for _, wrong := range []string{"cost/nothing", "lb-*", "cost/[", ""} {
		if got, err := Match([]string{"path/bridge", wrong}); !errors.Is(err, load.ErrUnknown) || slices.Contains(got, wrong) {
			t.Errorf("%q: %q, error %v", wrong, got, err)
		}
	}
}
