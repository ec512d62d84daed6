// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/node"
	"culvert/internal/show/status"
)

func newWatchCmd() *cobra.Command {
	var o status.WatchOptions
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "watch packet rates live, by interface and reason",
		Long: `Watch every interface on this machine that carries culvert, or those of one
data plane, or one interface: the rates of packets received, forwarded, passed to
the slow path, dropped and lost in the last interval, and for the selected interface
those of each reason, the fastest first. With -v a sentence explains each reason.
Needs root.

On a terminal it is a table; keys: up, down or tab select the interface, p pauses, v
explains the reasons and ? the columns, q quits. Elsewhere, and with -n, it is a line
for each interface and reason that counted packets in an interval. Routers may be
attached and detached meanwhile; one that is named with --on has to run at the
beginning.`,
		Example: `  culvert watch
  culvert watch --on br1-ff00_0_1-2 -i eth1 --interval 0.5
  culvert watch -n 10 | grep drop`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out, o.Err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return status.Watch(cmd.Context(), o)
		},
	}
	cli.OnlyFlag(cmd, &o.Router, node.Routers)
	cmd.Flags().StringVarP(&o.Interface, "interface", "i", "", "show only the interface `IFACE` (default: all)")
	cli.CompleteFlag(cmd, "interface", func([]string) []string {
		if o.Router == "" {
			return node.AttachedInterfaces()
		}
		return node.RouterInterfaces(o.Router)
	})
	cli.VerboseFlag(cmd, &o.Verbose)
	cli.WatchFlags(cmd, &o.Interval, &o.Count)
	return cmd
}
