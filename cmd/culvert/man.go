// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

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
		Args:   usageArgs(cobra.ExactArgs(1)),
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
		Short:                 "configuration of culvert, by default " + defaultConfig,
		DisableFlagsInUseLine: true,
		Long: `The configuration file of 'culvert run', 'culvert attach' and other commands with -c:
see culvert-run(8), culvert-attach(8), culvert-doctor(8), culvert-filter-test(8).

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
	cmd.Long = literalTables(cmd.Long)
	showJSONFlags(cmd)
	path := filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+"."+header.Section)
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write a man page: %w", err)
	}
	defer f.Close()
	page := header
	if err := doc.GenMan(cmd, &page, f); err != nil {
		return fmt.Errorf("write the man page %s: %w", path, err)
	}
	for _, sub := range cmd.Commands() {
		if !sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := writePage(dir, header, sub); err != nil {
			return err
		}
	}
	return f.Close()
}

// literalTables keeps the lines of tables and examples in man pages. Help texts indent them by two spaces. The generator reads
// the texts as Markdown, in which literal text is indented by four.
func literalTables(text string) string {
	lines := strings.Split(text, "\n")
	for n, line := range lines {
		if strings.HasPrefix(line, "  ") {
			lines[n] = "    " + strings.TrimPrefix(line, "  ")
		}
	}
	return strings.Join(lines, "\n")
}
