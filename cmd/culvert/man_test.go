// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"culvert/internal/datapath"
	"culvert/internal/decap/decapplane"
)

// TestManKeepsTables wants the lines of tables to be literal text in the pages.
func TestManKeepsTables(t *testing.T) {
	dir := t.TempDir()
	root := newRootCmd()
	root.SetArgs([]string{"man", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string]string{
		"status":        "\nin, out                           packets, bytes\n",
		"route-get":     "\nagree, difference                   whether they do, and how they do not\n",
		"run":           "\n[scion]\nconfig = \"/etc/scion/br.toml\"   # the SCION router's own file\n",
		"filter-add":    "\nlimit RATE  drop what is over RATE, and go on with the next rule for the rest\n",
		"lb-decap-show": "\nlocal, from, vips             as they are in force; [] allows all\n",
		"lb-show":       "\nring_size, seed_id                  positions of each ring, ID of the seed\n",
		"lb-explain":    "\nouter                               source, destination, source_port,\n",
		"lab-up":        "\nveth     one router under test, rut, between the endpoints a and b\n",
		"bench-run":     "\n        empty program takes\nscion3  packets a second",
	} {
		text, err := os.ReadFile(filepath.Join(dir, "man8", "culvert-"+page+".8"))
		if err != nil {
			t.Fatal(err)
		}
		var flush strings.Builder // literal lines keep their relative indentation
		for line := range strings.Lines(strings.ReplaceAll(string(text), "\\", "")) {
			if page == "status" {
				line = strings.TrimLeft(line, " ")
			}
			flush.WriteString(line)
		}
		if !strings.Contains(flush.String(), ".EX\n") || !strings.Contains(flush.String(), want) {
			t.Errorf("culvert-%s(8) lacks %q:\n%s", page, want, text)
		}
	}
}

// TestManKeepsText wants each line of the help texts in the pages as it is, with its stars and brackets.
func TestManKeepsText(t *testing.T) {
	dir := t.TempDir()
	var stars int
	look := func(page string, lines []string) {
		text, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil {
			t.Fatal(err)
		}
		got := strings.NewReplacer(`\&`, "", `\`, "", "\n", " ").Replace(string(text))
		for _, line := range lines {
			if line = strings.TrimSpace(line); strings.Contains(line, "`") || strings.HasPrefix(line, "#") {
				continue // Markdown of cobra's
			}
			if !strings.Contains(got, line) {
				t.Errorf("%s lacks the line %q", page, line)
			}
			stars += strings.Count(line, "*")
		}
	}
	texts := make(map[string][]string)
	var collect func(cmd *cobra.Command)
	collect = func(cmd *cobra.Command) {
		texts["man8/"+strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".8"] = strings.Split(cmd.Long, "\n")
		for _, sub := range cmd.Commands() {
			if isVerb(sub) {
				collect(sub)
			}
		}
	}
	collect(newRootCmd())
	texts["man5/culvert.toml.5"] = strings.Split(aboutConfig, "\n")
	root := newRootCmd()
	root.SetArgs([]string{"man", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	for page, lines := range texts {
		look(page, lines)
	}
	if stars == 0 {
		t.Error("no text has a star: there is nothing to see here")
	}
}

// TestManDescribesTheFile wants culvert.toml(5) to have the same text about the file as 'culvert run --help', and pages to have -j
// and -p only for commands that print JSON.
func TestManDescribesTheFile(t *testing.T) {
	dir := t.TempDir()
	root := newRootCmd()
	root.SetArgs([]string{"man", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	read := func(page string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	literal := func(page string) string {
		_, text, found := strings.Cut(read(page), ".EX\n")
		if !found {
			t.Fatalf("%s has no literal text", page)
		}
		text, _, _ = strings.Cut(text, ".EE\n")
		return text
	}
	if file := literal("man5/culvert.toml.5"); file != literal("man8/culvert-run.8") || !strings.Contains(file, "[[filter.rule]]") {
		t.Errorf("culvert.toml(5) and culvert-run(8) differ, or say nothing:\n%s", file)
	}
	for page, shows := range map[string]bool{"status": true, "attach": false, "filter-watch": false, "lb-decap-show": true} {
		if strings.Contains(read("man8/culvert-"+page+".8"), "pretty") != shows {
			t.Errorf("culvert-%s(8): -p is there: %t, want %t", page, !shows, shows)
		}
	}
}

// TestManExplainsReasons wants culvert-reasons(7) to explain every reason of the programs once, below the heading of its stage.
func TestManExplainsReasons(t *testing.T) {
	dir := t.TempDir()
	root := newRootCmd()
	root.SetArgs([]string{"man", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "man7", "culvert-reasons.7"))
	if err != nil {
		t.Fatal(err)
	}
	page := strings.NewReplacer(`\fB`, "", `\fP`, "", `\fR`, "", `\`, "", "\n", " ").Replace(string(text))
	explains := func(verdict, name, text string) {
		t.Helper()
		if name == "" {
			return // an index not in use
		}
		want := fmt.Sprintf(" .TP %s %s %s ", verdict, name, strings.ReplaceAll(text, "`", ""))
		if n := strings.Count(page, want); n != 1 {
			t.Errorf("culvert-reasons(7) has %d times, want once: %s", n, want)
		}
	}
	for _, r := range datapath.Reasons() {
		explains(string(r.Verdict), r.Name, r.Text)
	}
	for _, r := range decapplane.Reasons() {
		explains(r.Verdict, r.Name, r.Text)
	}
	at := 0
	for _, want := range []string{".SH NO STAGE ", ".TP pass other ", ".SH FILTER ", ".TP drop filter ", ".SH LB ", ".TP fwd lb-flow ", ".SH SCION ",
		".TP punt scion-mac ", ".SH ROUTE ", ".TP fwd route ", ".SH DECAP ", ".TP decap gue "} {
		n := strings.Index(page[at:], want)
		if n < 0 {
			t.Fatalf("no %q behind %q in\n%s", want, page[:at], text)
		}
		at += n
	}
}

// TestTablesStandAlone wants a blank line before each table. Without it the table is not literal text.
func TestTablesStandAlone(t *testing.T) {
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		before := ""
		for line := range strings.Lines(cmd.Long) {
			if strings.HasPrefix(line, "  ") && !strings.HasPrefix(before, "  ") && strings.TrimSpace(before) != "" {
				t.Errorf("%s: no blank line before %q", cmd.CommandPath(), line)
			}
			before = line
		}
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(newRootCmd())
}

// TestManShowsFlagsAsHelp wants flags to be shown as --help shows them, with the word for the value and no zero values, the verbs to
// be listed, and the pages of other sections to be named.
func TestManShowsFlagsAsHelp(t *testing.T) {
	dir := t.TempDir()
	root := newRootCmd()
	root.SetArgs([]string{"man", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string][]string{
		"man8/culvert.8": {"culvert COMMAND [ARGUMENT]... [FLAG]...", ".SH COMMANDS\n.TP\n\\fBculvert-attach(8)\\fP\nattach a data plane without a process\n",
			"\\fB--version\\fP\nprint the version\n", ", \\fBculvert.toml(5)\\fP, \\fBculvert-reasons(7)\\fP\n"},
		"man8/culvert-filter.8": {"culvert filter VERB [ARGUMENT]... [FLAG]...", "\\fBculvert-filter-add(8)\\fP\nadd a rule\n"},
		"man8/culvert-filter-add.8": {"\\fB-f\\fP, \\fB--file\\fP \\fIFILE\\fP\nread ", "\\fB--src\\fP \\fI", "\\fB-h\\fP, \\fB--help\\fP\n",
			"culvert filter add ACTION [RATE] ['EXPRESSION' | -f FILE | -] [FLAG]...\\fP"},
		"man8/culvert-lab-up.8": {"\\fB--bfd\\fP \\fITIME\\fP\nscion3, all: interval TIME of the BFD sessions (default 200ms)\n"},
		"man8/culvert-watch.8":  {"\\fB--interval\\fP \\fITIME\\fP\nupdate every TIME"},
		"man5/culvert.toml.5":   {".SH SEE ALSO\n\\fBculvert(8)\\fP, \\fBculvert-reasons(7)\\fP\n"},
	} {
		text, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(string(text), w) {
				t.Errorf("%s lacks %q:\n%s", page, w, text)
			}
		}
	}
	pages, err := filepath.Glob(dir + "/man*/*")
	if err != nil || len(pages) < 50 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, zero := range []string{`\fP=`, `\fP[=`, "[flags]"} {
			if strings.Contains(string(text), zero) {
				t.Errorf("%s has %q", page, zero)
			}
		}
	}
}
