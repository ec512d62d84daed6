// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/reason"
)

// newManCmd is "culvert man", for `make dist`. The pages are made from the help texts of the verbs.
func newManCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "write a man page for each verb, culvert.toml(5) and culvert-reasons(7), below DIR",
		Long: `Write the man pages: one for each verb into DIR/man8, from its help text,
culvert.toml(5), which describes the configuration file, into DIR/man5, and
culvert-reasons(7), which explains what becomes of packets, into DIR/man7.`,
		Hidden: true,
		Args:   cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			if err := writePages(filepath.Join(args[0], "man8"), "8", "System Administration", root); err != nil {
				return err
			}
			if err := writePages(filepath.Join(args[0], "man7"), "7", "Miscellaneous Information", reasonsPage()); err != nil {
				return err
			}
			return writePages(filepath.Join(args[0], "man5"), "5", "File Formats", configPage())
		},
	}
}

// configPage returns culvert.toml(5) as a command, which the generator of man pages needs.
func configPage() *cobra.Command {
	return &cobra.Command{
		Use:                   "culvert.toml",
		Short:                 "configuration of culvert, by default " + cli.DefaultConfig,
		DisableFlagsInUseLine: true,
		Long: `The configuration file of 'culvert run', 'culvert attach' and other commands with -c:
see culvert-run(8), culvert-check(8), culvert-attach(8), culvert-doctor(8),
culvert-filter-test(8).

` + aboutConfig,
	}
}

// reasonsPage returns culvert-reasons(7) as a command. It has each reason, by stage, with its verdict and its sentence.
func reasonsPage() *cobra.Command {
	var b strings.Builder
	b.WriteString(`Every packet that comes in by an interface with culvert is counted once, under a
verdict and a reason: see culvert-status(8), culvert-watch(8), and the metrics
culvert_packets_total and culvert_reason_info.

  fwd      forwarded, or answered
  punt     to the slow path of the stage
  pass     to the kernel, as if culvert were not there
  drop     dropped
  decap    to the kernel without the headers of its tunnel
  limited  punt, but dropped, because the limit of the reason is reached

`)
	for _, s := range reason.Stages() {
		title := s.Name
		if title == "core" {
			title = "no stage"
		}
		b.WriteString("# " + strings.ToUpper(title) + "\n")
		for _, r := range s.Reasons {
			fmt.Fprintf(&b, "\n**%s %s**\n:   %s\n", r.Verdict, r.Name, r.Text)
		}
		b.WriteByte('\n')
	}
	return &cobra.Command{
		Use:                   "culvert-reasons",
		Short:                 "what becomes of packets, and why",
		DisableFlagsInUseLine: true,
		Long:                  b.String(),
	}
}

// writePages writes the page of a command and those of the commands below it.
func writePages(dir, section, manual string, cmd *cobra.Command) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make a directory for the man pages: %w", err)
	}
	return writePage(dir, doc.GenManHeader{Section: section, Source: "culvert", Manual: manual}, cmd)
}

func writePage(dir string, header doc.GenManHeader, cmd *cobra.Command) error {
	cmd.DisableAutoGenTag = true
	cmd.Long = literalTables(cmd.Long, header.Section != "7")
	cli.ShowJSONFlags(cmd)
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	path := filepath.Join(dir, name+"."+header.Section)
	describeParts(cmd, header.Section)
	var text bytes.Buffer
	page := header
	if err := doc.GenMan(cmd, &page, &text); err != nil {
		return fmt.Errorf("write the man page %s: %w", path, err)
	}
	if also := seeAlso[name]; also != "" {
		before := ".SH SEE ALSO\n"
		if cmd.HasAvailableSubCommands() {
			before = ", " // the generator has named the pages of the verbs
		}
		text.Truncate(len(bytes.TrimRight(text.Bytes(), "\n")))
		if before[0] == '.' {
			text.WriteByte('\n')
		}
		text.WriteString(before + also + "\n")
	}
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write a man page: %w", err)
	}
	for _, sub := range cmd.Commands() {
		if !isVerb(sub) {
			continue
		}
		if err := writePage(dir, header, sub); err != nil {
			return err
		}
	}
	return nil
}

// seeAlso has pages of other sections that a page refers to at its end, beside those of the verbs.
var seeAlso = map[string]string{
	"culvert":         `\fBculvert.toml(5)\fP, \fBculvert-reasons(7)\fP`,
	"culvert.toml":    `\fBculvert(8)\fP, \fBculvert-reasons(7)\fP`,
	"culvert-reasons": `\fBculvert(8)\fP, \fBculvert.toml(5)\fP`,
}

// isVerb tells whether a command has a page.
func isVerb(cmd *cobra.Command) bool {
	return cmd.IsAvailableCommand() && !cmd.IsAdditionalHelpTopicCommand()
}

// describeParts adds the verbs and the flags of a command to its text, as --help shows them, and hides the flags from the
// generator, which would write their zero values in the place of the words for values.
func describeParts(cmd *cobra.Command, section string) {
	cmd.InitDefaultHelpFlag()
	var text strings.Builder
	if verbs := slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool { return !isVerb(c) }); len(verbs) > 0 {
		cmd.Use = cmd.Name() + " VERB [ARGUMENT]... [FLAG]..."
		cmd.DisableFlagsInUseLine = true
		if !cmd.HasParent() {
			cmd.Use = cmd.Name() + " COMMAND [ARGUMENT]... [FLAG]..."
		}
		text.WriteString("\n\n# COMMANDS\n")
		for _, c := range verbs {
			fmt.Fprintf(&text, "\n**%s(%s)**\n:   %s\n", strings.ReplaceAll(c.CommandPath(), " ", "-"), section, literalText.Replace(c.Short))
		}
	} else if !cmd.DisableFlagsInUseLine {
		cmd.Use = strings.ReplaceAll(cmd.Use, " [flags]", "") + " [FLAG]..."
		cmd.DisableFlagsInUseLine = true
	}
	if section != "8" {
		text.Reset() // a file or a list of reasons has neither
	}
	for _, part := range []struct {
		title string
		flags *pflag.FlagSet
	}{{"OPTIONS", cmd.NonInheritedFlags()}, {"OPTIONS INHERITED FROM PARENT COMMANDS", cmd.InheritedFlags()}} {
		if section == "8" && part.flags.HasAvailableFlags() {
			text.WriteString("\n\n# " + part.title + "\n")
			part.flags.VisitAll(func(f *pflag.Flag) { text.WriteString(flagText(f)) })
		}
		part.flags.VisitAll(func(f *pflag.Flag) { f.Hidden = true })
	}
	cmd.Long += text.String()
}

// literalText keeps a text from being read as Markdown.
var literalText = strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "<", `\<`, "[", `\[`, "`", "\\`")

// flagText returns an entry for a flag, as --help shows it, "" for one that is hidden.
func flagText(f *pflag.Flag) string {
	if f.Hidden {
		return ""
	}
	alone := pflag.NewFlagSet("", pflag.ContinueOnError)
	alone.AddFlag(f)
	name, usage, _ := strings.Cut(strings.TrimSpace(alone.FlagUsages()), "   ")
	name, value, _ := strings.Cut(name, "--"+f.Name)
	if value != "" {
		value = " *" + literalText.Replace(strings.TrimSpace(value)) + "*"
	}
	if f.Shorthand != "" {
		name = "**-" + f.Shorthand + "**, "
	}
	return fmt.Sprintf("\n%s**--%s**%s\n:   %s\n", name, f.Name, value, literalText.Replace(strings.Join(strings.Fields(usage), " ")))
}

// literalTables keeps the lines of tables and examples in man pages. Help texts indent them by two spaces. The generator reads
// the texts as Markdown, in which literal text is indented by four. With plain, the other lines are no Markdown either.
func literalTables(text string, plain bool) string {
	lines := strings.Split(text, "\n")
	for n, line := range lines {
		if strings.HasPrefix(line, "  ") {
			lines[n] = "    " + strings.TrimPrefix(line, "  ")
		} else if plain && !strings.HasPrefix(line, "\t") { // cobra's texts about completion have literal text with a tab
			lines[n] = literalText.Replace(line)
		}
	}
	return strings.Join(lines, "\n")
}
