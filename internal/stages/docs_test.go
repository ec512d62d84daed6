// SPDX-License-Identifier: Apache-2.0

package stages

import (
	"testing"

	"culvert/internal/datapath"
	"culvert/internal/reason"
	"culvert/internal/testbed"
)

// The pages for operators must explain each reason once, under its verdict, and no other: those of a stage on the page with its
// name, those of no stage on that of the SCION router.
func TestReasonsAreDocumented(t *testing.T) {
	pages := make(map[testbed.Explained]string) // by reason
	explained := make(map[string]map[testbed.Explained]int)
	for _, s := range reason.Stages() {
		page := "../../docs/" + map[bool]string{true: "scion", false: s.Name}[s.Name == "core"] + ".md"
		if s.Name == "decap" {
			continue // its page is tested with its program
		}
		for _, r := range s.Reasons {
			pages[testbed.Explained{Verdict: r.Verdict, Name: r.Name}] = page
		}
		explained[page] = testbed.ExplainedReasons(t, page)
	}
	for _, r := range datapath.Reasons() {
		if r.Name == "" {
			continue // an index not in use
		}
		if r.Text == "" {
			t.Errorf("nothing explains %s %s: run make generate", r.Verdict, r.Name)
		}
		name := testbed.Explained{Verdict: string(r.Verdict), Name: r.Name}
		path := pages[name]
		if n := explained[path][name]; n != 1 {
			t.Errorf("%s explains %s %s %d times, want once: it is in bpf/*/reasons.h",
				path, r.Verdict, r.Name, n)
		}
		delete(explained[path], name)
	}
	for path, left := range explained {
		for r := range left {
			t.Errorf("%s explains %s %s, which is not in bpf/*/reasons.h, or is of another page", path, r.Verdict, r.Name)
		}
	}
}
