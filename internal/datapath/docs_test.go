// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"os"
	"regexp"
	"testing"
)

// The page for operators must explain each reason once, under its verdict, and no other.
func TestReasonsAreDocumented(t *testing.T) {
	const path = "../../docs/scion.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	explained := make(map[Reason]int)
	row := regexp.MustCompile("(?m)^\\| `([a-z]+)` \\| `([a-z0-9-]+)` \\| *[^ |]")
	for _, m := range row.FindAllSubmatch(page, -1) {
		explained[Reason{Verdict: Verdict(m[1]), Name: string(m[2])}]++
	}
	for _, r := range Reasons() {
		if r.Name == "" {
			continue // a number not in use
		}
		if n := explained[r]; n != 1 {
			t.Errorf("%s explains %s %s %d times, want once: it is a value of enum reason in bpf/reason.h",
				path, r.Verdict, r.Name, n)
		}
		delete(explained, r)
	}
	for r := range explained {
		t.Errorf("%s explains %s %s, which is not in enum reason of bpf/reason.h", path, r.Verdict, r.Name)
	}
}
