// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLayouts reads the same two reasons in every layout that C allows.
func TestLayouts(t *testing.T) {
	want := []reason{{"DROP", "MINI_BLOCKED", `to a "blocked" port`}, {"PASS", "OTHER", "C:\\ // /* not a comment */"}}
	const one, two = `R(DROP, MINI_BLOCKED, "to a \"blocked\" port")`, `R(PASS, OTHER, "C:\\ // /* not a comment */")`
	for name, header := range map[string]string{
		"one line":            "#define MINI_REASONS(R) " + one + " " + two + "\n",
		"no space":            "#define MINI_REASONS(R)" + one + two,
		"tabs":                "#define MINI_REASONS(R) \\\n\t" + one + " \\\n\t" + two + "\n",
		"spaces":              "#define MINI_REASONS(R) \\\n    " + one + "\\\n    " + two + "\n#define MINI_ROOM 4\n",
		"Windows":             "#define MINI_REASONS(R) \\\r\n    " + one + "\\\r\n    " + two + "\r\n#define MINI_ROOM 4\r\n",
		"as clang-format has": "#define MINI_REASONS(R)   \\\n\tR(DROP, MINI_BLOCKED, \\\n\t  \"to a \\\"blocked\\\" \" \\\n\t  \"port\") \\\n\t" + two + "\n",
		"comments":            "/* R(PUNT, NONE, \"not this one\") */\n#define MINI_REASONS(R) /* first */ " + one + " /* second */ \\\n\t" + two + " // end\n// R(PUNT, NONE, \"nor this\")\n",
		"another parameter":   "# define MINI_REASONS( X ) X (DROP,MINI_BLOCKED,\"to a \\\"blocked\\\" port\") X" + two[1:] + "\n",
	} {
		got, err := parse("mini", header)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, want)
		}
	}
}

// TestBadHeaders wants an error that says what is wrong and how to write it.
func TestBadHeaders(t *testing.T) {
	const how = `write #define MINI_REASONS(R) and an entry R(VERDICT, NAME, "sentence") for each reason`
	for header, want := range map[string]string{
		"": "no macro MINI_REASONS(R): " + how,
		"#define OTHER_REASONS(R) R(DROP, A, \"b\")\n":         "no macro MINI_REASONS(R): " + how,
		"#define MINI_REASONS(R)\n":                            "MINI_REASONS has no reasons: " + how,
		"#define MINI_REASONS(R)\n\tR(DROP, A, \"b\")\n":       "MINI_REASONS has no reasons: " + how, // the backslash is missing
		"#define MINI_REASONS(R) R(DROP, A)\n":                 `no entry begins with "R(DROP, A)": ` + how,
		"#define MINI_REASONS(R) R(DROP, A, \"b\"), R(PASS)\n": `no entry begins with ", R(PASS)": ` + how,
		"#define MINI_REASONS(R) R(DROP, A, B)\n":              `no entry begins with "R(DROP, A, B)"`,
		"#define MINI_REASONS(R) R(DROP, A, \" \")\n":          "reason DROP_A: no sentence that explains it to users",
		"#define MINI_REASONS(R) R(DROP, A, \"\\q\")\n":        `use no escapes but \" and \\`,
		"#define MINI_REASONS(R) R(DROP, A, \"b)\n":            "a string without an end",
		"/* #define MINI_REASONS(R) R(DROP, A, \"b\")\n":       "a comment without an end",
	} {
		if got, err := parse("mini", header); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v, want error %q", header, got, err, want)
		}
	}
}

// TestOwnHeaders wants the headers of the programs to have as many reasons as lines with one.
func TestOwnHeaders(t *testing.T) {
	paths, err := filepath.Glob("../../bpf/*/reasons.h")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d headers, %v", len(paths), err)
	}
	for _, path := range paths {
		header, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parse(filepath.Base(filepath.Dir(path)), string(header))
		if want := strings.Count(string(header), "\n\tR("); err != nil || len(got) != want {
			t.Errorf("%s: %d reasons, %v, want %d", path, len(got), err, want)
		}
	}
}
