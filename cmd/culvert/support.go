// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/lb/lbstage"
	"culvert/internal/support"
)

func newSupportCmd() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "support",
		Short: "pack what is asked for when something does not work, without secrets",
		Long: `Pack what is asked for when something does not work, into a file that only its
owner may read: versions, kernel, configurations with their drop-ins, status, what
doctor and check say of those that processes have in force, counters, rules, VIPs,
links, addresses and the log of the units. The archive's README names all parts,
the commands that failed, and what could not be had.

Keys, passwords and seeds are left out: of the configurations the values of all keys
that may hold one, and what is in files of passwords also in all other parts.
Addresses, names and rules are in it: look through it before you send it.`,
		Example: "  culvert support\n  culvert support -o /tmp/edge.tar.gz && tar -xzOf /tmp/edge.tar.gz culvert-support/README",
		Args:    cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			now := time.Now()
			if output == "" {
				output = support.Name(now)
			}
			missing, err := support.File(cmd.Context(), output, support.Options{
				Culvert: exe, ConfigDir: filepath.Dir(cli.DefaultConfig), SecretFiles: []string{lbstage.SeedPath()}, Now: now,
			})
			if err != nil {
				return err
			}
			for _, m := range missing {
				fmt.Fprintln(cmd.ErrOrStderr(), "without", m)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), output)
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "write the archive `FILE` (default culvert-support-HOST-TIME.tar.gz)")
	cli.CompleteFileFlag(cmd, "output", "gz")
	return cmd
}
