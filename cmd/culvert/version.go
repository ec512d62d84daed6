// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/version"
)

func newVersionCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "print the version of culvert and of what it was built from",
		Long: `Print the version of culvert and of what it was built from.

With -j, an object with the members:

  version                       in one word
  long                          the line that is printed without -j`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return version.WriteJSON(cmd.OutOrStdout())
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version.Long())
			return err
		},
	}
	cli.CanPrintJSON(cmd, &asJSON)
	return cmd
}
