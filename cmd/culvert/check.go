// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/node"
)

func newCheckCmd() *cobra.Command {
	var config string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "check a configuration without touching anything",
		Long: `Check whether 'culvert run' would accept a configuration file (see culvert.toml(5))
with its drop-ins on this host, and say in one line what it turns on. All errors
are shown, each in a line, with file, line and column in front where there is one.
The exit status is 0 without errors, 1 with some.

Checked are keys, values and expressions; the files that the file names, such as
sets, passwords and those of the SCION router; interfaces, addresses, netfilter;
and whether stages contradict each other, or what was made by hand on the running
data plane. What keeps nothing from starting is a note. Nothing is touched: no
interface, map, socket or file. What the process of the running data plane holds
is not in the way.

Anybody who may read the file can check it. What only root may look at is listed
as not checked, and does not count as an error.

Not found is what shows only when programs are loaded, such as a kernel that is
too old: see 'culvert doctor'.

With -j, an object:

  ok                                  whether there are no errors
  file, files                         the file; and with its drop-ins
  name, mode, interfaces              of the data plane
  stages                              stage, counts (such as rules, sets, vips)
  errors, notes, unchecked            file, line, column (where known), error`,
		Example: "  culvert check\n  culvert check -c edge.toml\n  culvert check -j | jq .errors",
		Args:    cli.FileByFlag,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.HaveConfig(cmd, config); err != nil {
				return err
			}
			return node.ShowCheck(config, asJSON, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cli.ConfigFlag(cmd, &config, cli.DefaultConfig, "configuration `FILE`, see culvert.toml(5)")
	cli.CanPrintJSON(cmd, &asJSON)
	return cmd
}
