// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"testing"
)

// TestJSONForms writes texts at once and byte by byte, and compares the results with the standard library's.
func TestJSONForms(t *testing.T) {
	for _, text := range []string{
		`{}`, `[]`, "{ }\n", `{"a": 1}`, "[\n  1,\n  2\n]\n", `{"a": {}, "b": [], "c": [{}], "d": [[], [1]]}`,
		`{"quoted": "a \" b", "brackets": "{[,: ]}", "escaped": "\\", "next": null}`,
		"{\"flows\": [\n{\"client\":\"a\"},\n{\"client\":\"b\"}\n]}\n",
	} {
		var compact, indented bytes.Buffer
		Must(json.Compact(&compact, []byte(text)))
		Must(json.Indent(&indented, compact.Bytes(), "", "  "))
		for _, want := range []struct {
			text   string
			pretty bool
		}{{compact.String() + "\n", false}, {indented.String() + "\n", true}} {
			for _, step := range []int{1, 3, len(text)} {
				var got bytes.Buffer
				w := &jsonWriter{out: &got, pretty: want.pretty}
				for rest := []byte(text); len(rest) > 0; rest = rest[min(step, len(rest)):] {
					if _, err := w.Write(rest[:min(step, len(rest))]); err != nil {
						t.Fatal(err)
					}
				}
				if got.String() != want.text {
					t.Errorf("%s by %d bytes: %q, want %q", text, step, got.String(), want.text)
				}
			}
		}
	}
}
