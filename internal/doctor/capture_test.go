// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"
)

// A capture that was left over is a warning, with the command that ends it.
func TestLeftCapture(t *testing.T) {
	if found := checkCaptures(nil); len(found) > 0 {
		t.Errorf("without a capture: %+v", found)
	}
	found := checkCaptures([]LeftCapture{{Router: "r1", Expression: "udp port 53"}, {Router: "r2"}})
	if len(found) != 2 {
		t.Fatalf("%d findings of 2 captures: %+v", len(found), found)
	}
	for n, want := range []struct{ text, command string }{
		{"on r1 (udp port 53)", "culvert capture --on r1 -n 1"}, {"on r2 (all packets)", "culvert capture --on r2 -n 1"},
	} {
		f := found[n]
		if f.Status != Warn || f.Check != "capture" || !strings.Contains(f.Finding, want.text) || f.Command != want.command {
			t.Errorf("finding %d: %+v", n, f)
		}
	}
}
