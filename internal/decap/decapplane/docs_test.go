// SPDX-License-Identifier: Apache-2.0

package decapplane

import (
	"testing"

	"culvert/internal/testbed"
)

// TestDecapReasonsAreDocumented: the page explains each reason of bpf/decap/reasons.h once, and no other.
func TestDecapReasonsAreDocumented(t *testing.T) {
	const page = "../../../docs/lb-decap.md"
	explained := testbed.ExplainedReasons(t, page)
	for _, r := range Reasons() {
		if r.Name != "" && r.Text == "" {
			t.Errorf("nothing explains %s %s: run make generate", r.Verdict, r.Name)
		}
		name := testbed.Explained{Verdict: r.Verdict, Name: r.Name}
		if n := explained[name]; r.Name != "" && n != 1 {
			t.Errorf("%s explains %s %s %d times, want once: it is in bpf/decap/reasons.h",
				page, r.Verdict, r.Name, n)
		}
		delete(explained, name)
	}
	for r := range explained {
		t.Errorf("%s explains %s %s, which is not in bpf/decap/reasons.h", page, r.Verdict, r.Name)
	}
}
