// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The pages for operators must explain each reason once, under its verdict, and no other: those of the IP router,
// of the filter and of the load balancer on pages of their own.
func TestReasonsAreDocumented(t *testing.T) {
	const scion, route, filter, lb = "../../docs/scion.md", "../../docs/route.md", "../../docs/filter.md", "../../docs/lb.md"
	explained := make(map[string]map[Reason]int)
	for _, path := range []string{scion, route, filter, lb} {
		explained[path] = explainedReasons(t, path)
	}
	for _, r := range Reasons() {
		if r.Name == "" {
			continue // an index not in use
		}
		if r.Text == "" {
			t.Errorf("nothing explains %s %s: run make generate", r.Verdict, r.Name)
		}
		r = Reason{Name: r.Name, Verdict: r.Verdict}
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
		if n := explained[path][r]; n != 1 {
			t.Errorf("%s explains %s %s %d times, want once: it is in bpf/*/reasons.h",
				path, r.Verdict, r.Name, n)
		}
		delete(explained[path], r)
	}
	for path, left := range explained {
		for r := range left {
			t.Errorf("%s explains %s %s, which is not in bpf/*/reasons.h, or is of another page", path, r.Verdict, r.Name)
		}
	}
}

// The page of the tunnels' other end explains each of its reasons once, and no other.
func TestDecapReasonsAreDocumented(t *testing.T) {
	const page = "../../docs/lb-decap.md"
	explained := explainedReasons(t, page)
	for _, r := range DecapReasons() {
		if r.Name != "" && r.Text == "" {
			t.Errorf("nothing explains %s %s: run make generate", r.Verdict, r.Name)
		}
		r = Reason{Name: r.Name, Verdict: r.Verdict}
		if n := explained[r]; r.Name != "" && n != 1 {
			t.Errorf("%s explains %s %s %d times, want once: it is in bpf/decap/reasons.h",
				page, r.Verdict, r.Name, n)
		}
		delete(explained, r)
	}
	for r := range explained {
		t.Errorf("%s explains %s %s, which is not in bpf/decap/reasons.h", page, r.Verdict, r.Name)
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
