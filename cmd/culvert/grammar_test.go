// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/bench"
)

// grammarPage is the page that has tables of all commands and flags.
const grammarPage = "../../docs/development.md"

var update = flag.Bool("update", false, "write the tables of commands and flags in "+grammarPage+" anew")

// commands calls do for a command and all commands below it.
func commands(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, sub := range cmd.Commands() {
		commands(sub, do)
	}
}

// leaves calls do for each command that has no commands below it.
func leaves(cmd *cobra.Command, do func(*cobra.Command)) {
	commands(cmd, func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() {
			do(cmd)
		}
	})
}

func name(cmd *cobra.Command) string { return strings.TrimPrefix(cmd.CommandPath(), "culvert ") }

// flagsOf returns the flags of a command, with the global ones that it accepts.
func flagsOf(cmd *cobra.Command) (flags []*pflag.Flag) {
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			flags = append(flags, f)
		}
	})
	if cli.HasJSON(cmd) {
		cmd.Root().PersistentFlags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f) })
	}
	return flags
}

// cell formats words as a cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + cell(text) + "`"
}

// spelled returns a flag as it is typed.
func spelled(f *pflag.Flag) string {
	text := "--" + f.Name
	if f.Shorthand != "" {
		text = "-" + f.Shorthand + ", " + text
	}
	if value, _ := pflag.UnquoteUsage(f); value != "" {
		text += " " + value
	}
	return text
}

// commandRows returns the rows of the table of commands.
func commandRows(root *cobra.Command) (rows []string) {
	leaves(root, func(cmd *cobra.Command) {
		_, args, _ := strings.Cut(cmd.Use, " ")
		args = strings.TrimSpace(strings.TrimPrefix(args, "[flags]"))
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", name(cmd), code(args), cell(cmd.Short)))
	})
	slices.Sort(rows)
	return rows
}

// flagRows returns the rows of the table of flags: one for each meaning, with the commands that accept it.
func flagRows(root *cobra.Command) (rows []string) {
	takers := map[string][]string{}
	leaves(root, func(cmd *cobra.Command) {
		for _, f := range flagsOf(cmd) {
			_, meaning := pflag.UnquoteUsage(f)
			row := fmt.Sprintf("| %s | %s |", code(spelled(f)), cell(meaning))
			takers[row] = append(takers[row], "`"+name(cmd)+"`")
		}
	})
	byName := func(row string) string { return row[strings.Index(row, "--"):] }
	for _, row := range slices.SortedFunc(maps.Keys(takers), func(a, b string) int { return strings.Compare(byName(a), byName(b)) }) {
		slices.Sort(takers[row])
		rows = append(rows, row+" "+strings.Join(takers[row], ", ")+" |")
	}
	return rows
}

// table returns the rows of the table below a heading, and their range in the page.
func table(t *testing.T, page, head string) (rows []string, from, to int) {
	t.Helper()
	at := strings.Index(page, "\n"+head+"\n|---")
	if at < 0 {
		t.Fatalf("%s has no table %q", grammarPage, head)
	}
	from = at + len(head) + 2
	from += strings.Index(page[from:], "\n") + 1
	to = from
	for strings.HasPrefix(page[to:], "|") {
		end := to + strings.Index(page[to:], "\n")
		rows = append(rows, page[to:end])
		to = end + 1
	}
	return rows, from, to
}

func readPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(grammarPage)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestGrammarIsDocumented compares all commands and flags with the tables of the page.
func TestGrammarIsDocumented(t *testing.T) {
	page := readPage(t)
	root := newRootCmd()
	for head, want := range map[string][]string{
		"| command | arguments | what it does |": commandRows(root),
		"| flag | meaning | commands |":          flagRows(root),
	} {
		got, from, to := table(t, page, head)
		if *update {
			page = page[:from] + strings.Join(want, "\n") + "\n" + page[to:]
			continue
		}
		for _, row := range want {
			if !slices.Contains(got, row) {
				t.Errorf("%s lacks the row (go test ./cmd/culvert -run Grammar -update writes it)\n%s", grammarPage, row)
			}
		}
		for _, row := range got {
			if !slices.Contains(want, row) {
				t.Errorf("%s has a row that is no command's\n%s", grammarPage, row)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d rows below %q, want %d", grammarPage, len(got), head, len(want))
		}
	}
	if *update {
		if err := os.WriteFile(grammarPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestShorthandsMeanOneThing wants each letter to stand for one flag, everywhere, and to be in the table of letters.
func TestShorthandsMeanOneThing(t *testing.T) {
	flags := map[string]string{}   // by letter
	letters := map[string]string{} // by flag
	root := newRootCmd()
	root.InitDefaultVersionFlag()
	commands(root, func(cmd *cobra.Command) {
		for _, f := range flagsOf(cmd) {
			if letter, seen := letters[f.Name]; seen && letter != f.Shorthand {
				t.Errorf("%s: --%s has the letter %q here and %q elsewhere", cmd.CommandPath(), f.Name, f.Shorthand, letter)
			}
			letters[f.Name] = f.Shorthand
			if f.Shorthand == "" {
				continue
			}
			if flag, seen := flags[f.Shorthand]; seen && flag != f.Name {
				t.Errorf("%s: -%s is --%s here and --%s elsewhere", cmd.CommandPath(), f.Shorthand, f.Name, flag)
			}
			flags[f.Shorthand] = f.Name
		}
	})
	var want []string
	for letter, flag := range flags {
		want = append(want, fmt.Sprintf("| `-%s` | `--%s` |", letter, flag))
	}
	rows, _, _ := table(t, readPage(t), "| letter | flag | stands for |")
	for _, row := range rows {
		cells := strings.SplitAfterN(row, "|", 4)
		if n := slices.Index(want, strings.Join(cells[:3], "")); n < 0 {
			t.Errorf("%s has a letter that is no command's: %s", grammarPage, row)
		} else {
			want = slices.Delete(want, n, n+1)
		}
	}
	if len(want) > 0 {
		t.Errorf("%s lacks %q", grammarPage, want)
	}
}

// TestGrammarOfVerbs wants no synonyms for del, list and show, and wants commands that show something to print JSON.
func TestGrammarOfVerbs(t *testing.T) {
	leaves(newRootCmd(), func(cmd *cobra.Command) {
		switch verb := cmd.Name(); verb {
		case "delete", "remove", "rm", "stats", "ls":
			t.Errorf("%s: the grammar has del, list and show", cmd.CommandPath())
		case "list", "show", "status":
			if !cli.HasJSON(cmd) {
				t.Errorf("%s prints no JSON", cmd.CommandPath())
			}
			if !strings.HasPrefix(strings.ToLower(cmd.Short), strings.Replace(verb, "status", "show", 1)+" ") {
				t.Errorf("%s: %q does not begin with the verb", cmd.CommandPath(), cmd.Short)
			}
		}
		if len(cmd.Aliases) > 0 && cmd.Name() != "help" {
			t.Errorf("%s has other names: %v", cmd.CommandPath(), cmd.Aliases)
		}
		if f := cmd.Flag("config"); f != nil && f.DefValue != "" && f.DefValue != cli.DefaultConfig {
			t.Errorf("%s: the default configuration is %s", cmd.CommandPath(), f.DefValue)
		}
	})
}

// TestBenchRunNamesScenarios wants the help of bench run to explain every scenario.
func TestBenchRunNamesScenarios(t *testing.T) {
	cmd, _, err := newRootCmd().Find([]string{"bench", "run"})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range bench.Scenarios() {
		if !strings.Contains(cmd.Long, "\n  "+s+" ") {
			t.Errorf("bench run --help does not explain %s", s)
		}
	}
}
