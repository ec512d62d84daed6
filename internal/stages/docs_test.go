// SPDX-License-Identifier: Apache-2.0

package stages

import (
	"strings"
	"testing"

	"culvert/internal/datapath"
	"culvert/internal/testbed"
)

// The pages for operators must explain each reason once, under its verdict, and no other: those of the IP router,
// of the filter and of the load balancer on pages of their own.
func TestReasonsAreDocumented(t *testing.T) {
	const scion, route, filter, lb = "../../docs/scion.md", "../../docs/route.md", "../../docs/filter.md", "../../docs/lb.md"
	explained := make(map[string]map[testbed.Explained]int)
	for _, path := range []string{scion, route, filter, lb} {
		explained[path] = testbed.ExplainedReasons(t, path)
	}
	for _, r := range datapath.Reasons() {
		if r.Name == "" {
			continue // an index not in use
		}
		if r.Text == "" {
			t.Errorf("nothing explains %s %s: run make generate", r.Verdict, r.Name)
		}
		name := testbed.Explained{Verdict: string(r.Verdict), Name: r.Name}
		path := scion
		if r.Name == "route" || strings.HasPrefix(r.Name, "route-") {
			path = route
		}
		if r.Name == "filter" || strings.HasPrefix(r.Name, "filter-") {
			path = filter
		}
		if strings.HasPrefix(r.Name, "lb-") {
			path = lb
		}
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
