// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newManCmd is for `make dist`; the pages come from the help texts of the verbs.
func newManCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "write a man page for each verb, and culvert.toml(5), into DIR/man8 and DIR/man5",
		Long: `Write the man pages: one for each verb into DIR/man8, from its help text, and
culvert.toml(5), which describes the configuration file, into DIR/man5.`,
		Hidden: true,
		Args:   usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			if err := writePages(filepath.Join(args[0], "man8"), "8", "System Administration", root); err != nil {
				return err
			}
			return writePages(filepath.Join(args[0], "man5"), "5", "File Formats", configPage())
		},
	}
}

// configPage has what culvert.toml(5) says.
func configPage() *cobra.Command {
	return &cobra.Command{
		Use:                   "culvert.toml",
		Short:                 "configuration of culvert, by default " + defaultConfig,
		DisableFlagsInUseLine: true,
		Long: `What 'culvert run' and 'culvert attach' read, and others that take -c: see
culvert-run(8), culvert-attach(8), culvert-doctor(8), culvert-filter-test(8).

` + aboutConfig,
	}
}

// writePages writes the pages of a command and those below it.
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

// literalTables makes the man pages keep the lines of tables and examples, which the help texts
// indent by two or more: the texts are read as Markdown, where it takes four.
func literalTables(text string) string {
	lines := strings.Split(text, "\n")
	for n, line := range lines {
		if strings.HasPrefix(line, "  ") {
			lines[n] = "    " + strings.TrimPrefix(line, "  ")
		}
	}
	return strings.Join(lines, "\n")
}
