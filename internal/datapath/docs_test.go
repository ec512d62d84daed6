// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The pages for operators must explain each reason once, under its verdict, and no other: those of the IP router
// and of the filter on pages of their own.
func TestReasonsAreDocumented(t *testing.T) {
	const scion, route, filter = "../../docs/scion.md", "../../docs/route.md", "../../docs/filter.md"
	explained := make(map[string]map[Reason]int)
	for _, path := range []string{scion, route, filter} {
		explained[path] = explainedReasons(t, path)
	}
	for _, r := range Reasons() {
		if r.Name == "" {
			continue // a number not in use
		}
		path := scion
		if r.Name == "route" || strings.HasPrefix(r.Name, "route-") {
			path = route
		}
		if r.Name == "filter" || strings.HasPrefix(r.Name, "filter-") {
			path = filter
		}
		if n := explained[path][r]; n != 1 {
			t.Errorf("%s explains %s %s %d times, want once: it is a value of enum reason in bpf/reason.h",
				path, r.Verdict, r.Name, n)
		}
		delete(explained[path], r)
	}
	for path, left := range explained {
		for r := range left {
			t.Errorf("%s explains %s %s, which is not in enum reason of bpf/reason.h, or is of another page", path, r.Verdict, r.Name)
		}
	}
}

func explainedReasons(t *testing.T, path string) map[Reason]int {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	explained := make(map[Reason]int)
	row := regexp.MustCompile("(?m)^\\| `([a-z]+)` \\| `([a-z0-9-]+)` \\| *[^ |]")
	for _, m := range row.FindAllSubmatch(page, -1) {
		explained[Reason{Verdict: Verdict(m[1]), Name: string(m[2])}]++
	}
	return explained
}
