// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"os"
	"regexp"
	"testing"
)

// Explained is a reason that a page in docs/ explains.
type Explained struct{ Verdict, Name string }

// ExplainedReasons counts how often a page explains each reason in its tables.
func ExplainedReasons(t testing.TB, path string) map[Explained]int {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	explained := make(map[Explained]int)
	row := regexp.MustCompile("(?m)^\\| `([a-z]+)` \\| `([a-z0-9-]+)` \\| *[^ |]")
	for _, m := range row.FindAllSubmatch(page, -1) {
		explained[Explained{Verdict: string(m[1]), Name: string(m[2])}]++
	}
	return explained
}
