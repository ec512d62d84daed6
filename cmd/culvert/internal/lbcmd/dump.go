// SPDX-License-Identifier: Apache-2.0

package lbcmd

import (
	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/lb/lbview"
	"culvert/internal/node"
	"culvert/internal/show/dump"
)

func newDumpCmd() *cobra.Command {
	var o dump.Options
	cmd := &cobra.Command{
		Use:   "dump",
		Short: "write VIPs and backends as a configuration file",
		Long: `Write the load balancer that runs as a configuration file: its options, VIPs with
their checks, backends, whether they are from the file or made by hand. 'culvert
check' accepts it, and a data plane that is started from it has the same VIPs and
backends. Its name, mode and interfaces are in it, unless --tables leaves them out.

With --by-hand it is a drop-in, for a data plane that has a file: only VIPs that were
made by hand, without name, mode and interfaces. Once the file is read again they are
the file's, and not in the next such dump: write each to a drop-in of its own.

What no file can express is a comment that begins with "warning:" and a line on
standard error. Such are drained VIPs, for which that line has the command. A drained
backend has weight 0, and a comment with its weight. Left out are [lb.bgp], which only
the process has, and the seed: it is that of the machine, or has to be added.`,
		Example: "  culvert lb dump > new.toml && culvert check -c new.toml\n" +
			"  culvert lb dump --by-hand > /etc/culvert/culvert.d/z-lb-$(date +%F-%H%M%S).toml\n" +
			"  culvert filter dump > new.toml && culvert lb dump --tables >> new.toml",
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out, o.Warn, o.Others = cmd.OutOrStdout(), cmd.ErrOrStderr(), node.BesideLB
			return lbview.Dump(o)
		},
	}
	cli.DumpFlags(cmd, &o)
	cli.OnFlag(cmd, &o.On, node.LBDataPlanes)
	return cmd
}
