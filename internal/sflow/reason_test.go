// SPDX-License-Identifier: Apache-2.0

package sflow

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"culvert/internal/reason"
)

// TestMappings wants each reason that is mapped to be one of culvert's, in docs/sflow.md with its code, and each reason to drop to be
// mapped.
func TestMappings(t *testing.T) {
	known, drops := make(map[string]bool), make(map[string]bool)
	for _, r := range reason.Pipeline() {
		known[r.Name] = true
		if r.Verdict == "drop" && !strings.HasPrefix(r.Name, "example") {
			drops[r.Name] = true
		}
	}
	page, err := os.ReadFile("../../docs/sflow.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mappings {
		if !known[m.Name] {
			t.Errorf("there is no reason %s", m.Name)
		}
		delete(drops, m.Name)
		line := regexp.MustCompile("(?m)^\\|.*`" + m.Name + "`.*$").FindString(string(page))
		if code := fmt.Sprintf("%d %s", m.Reason, m.Word); !strings.Contains(line, code) {
			t.Errorf("docs/sflow.md does not have %s as %s", m.Name, code)
		}
	}
	for name := range drops {
		t.Errorf("reason %s is not mapped", name)
	}
	for name, want := range map[string]Reason{"scion-mac": UnknownL3, "lb-headers": UnknownL4, "other": UnknownReason} {
		if got := ReasonOf(name, false); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
		if got := ReasonOf(name, true); got != TrafficShaping {
			t.Errorf("%s over its limit is %d", name, got)
		}
	}
}
