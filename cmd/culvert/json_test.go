// SPDX-License-Identifier: Apache-2.0

package main

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
		must(json.Compact(&compact, []byte(text)))
		must(json.Indent(&indented, compact.Bytes(), "", "  "))
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

// TestVersionJSON has -j in front of the verb and behind it.
func TestVersionJSON(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"version", "-j"}, `{"version":"dev","long":"culvert dev (`},
		{[]string{"-j", "version"}, `{"version":"dev","long":"culvert dev (`},
		{[]string{"-p", "version"}, "{\n  \"version\": \"dev\",\n"},
		{[]string{"version", "-j", "-p"}, "{\n  \"version\": \"dev\",\n"},
	} {
		status, out, errs := culvert(t, tt.args...)
		if status != 0 || errs != "" || len(out) < len(tt.want) || out[:len(tt.want)] != tt.want {
			t.Errorf("culvert %q: status %d, stderr %q, stdout %q, want %q", tt.args, status, errs, out, tt.want)
		}
	}
}
