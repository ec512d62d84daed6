// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/cobra"

	"culvert/internal/node"
	"culvert/internal/show/status"
)

func newWatchCmd() *cobra.Command {
	var (
		o        status.WatchOptions
		interval float64
	)
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "watch live what becomes of packets, by interface and reason",
		Long: `Watch every interface on this machine that carries culvert, or those of one
data plane, or one interface: rates over the last interval of what was received,
forwarded, given to the slow path, dropped and lost, and for the chosen
interface the same by reason, the fastest first; with -v a sentence explains each
reason. Needs root.

On a terminal it is a table; keys: up, down or tab choose the interface, p holds
the figures, v explains the reasons and ? the figures, q leaves. Elsewhere, and with
-n, it is a line for each interface and reason that moved in an interval. Routers
may come and go; one that is named with --on has to be there at the beginning.`,
		Example: `  culvert watch
  culvert watch --on br1-ff00_0_1-2 -i eth1 --interval 0.5
  culvert watch -n 10 | grep drop`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Interval = time.Duration(interval * float64(time.Second))
			o.Out, o.Err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return status.Watch(cmd.Context(), o)
		},
	}
	onlyFlag(cmd, &o.Router, node.Routers)
	cmd.Flags().StringVarP(&o.Interface, "interface", "i", "", "show only the interface `IFACE` (default: all)")
	completeFlag(cmd, "interface", func([]string) []string {
		if o.Router == "" {
			return node.AttachedInterfaces()
		}
		return node.RouterInterfaces(o.Router)
	})
	verboseFlag(cmd, &o.Verbose)
	watchFlags(cmd, &interval, &o.Count)
	return cmd
}
