// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newManCmd is for `make dist`; the pages come from the help texts of the verbs.
func newManCmd() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "write a man page for each verb into DIR",
		Hidden: true,
		Args:   usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("make a directory for the man pages: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			literalTables(root)
			header := &doc.GenManHeader{Section: "1", Source: "culvert", Manual: "User Commands"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("write the man pages to %s: %w", args[0], err)
			}
			return nil
		},
	}
}

// literalTables makes the man pages keep the lines of tables and examples, which the help texts
// indent by two or more: the texts are read as Markdown, where it takes four.
func literalTables(cmd *cobra.Command) {
	lines := strings.Split(cmd.Long, "\n")
	for n, line := range lines {
		if strings.HasPrefix(line, "  ") {
			lines[n] = "    " + strings.TrimPrefix(line, "  ")
		}
	}
	cmd.Long = strings.Join(lines, "\n")
	for _, sub := range cmd.Commands() {
		literalTables(sub)
	}
}
