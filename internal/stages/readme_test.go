// SPDX-License-Identifier: Apache-2.0

package stages

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestReadmeDrawing wants the drawing in the README to have all stages, by their names and in their order. The README has to
// be short.
func TestReadmeDrawing(t *testing.T) {
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	const longest = 200
	if n := strings.Count(text, "\n"); n > longest {
		t.Errorf("README.md has %d lines: move some to docs/, it is meant for a first look and has %d at most", n, longest)
	}
	var drawn []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, "─▶ verdict") {
			for _, word := range strings.Split(line, "─▶") {
				drawn = append(drawn, strings.Trim(word, " ┌─┐\n"))
			}
		}
	}
	want := []string{"filter", "rx", "parse"}
	for _, s := range All()[1:] { // the filter stands in front of the program
		if s.Name() != "sflow" { // it is at no place of its own
			want = append(want, s.Name())
		}
	}
	if want = append(want, "verdict"); !slices.Equal(drawn, want) {
		t.Errorf("the drawing has %v, want %v", drawn, want)
	}
}
