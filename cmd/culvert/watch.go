// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"culvert/internal/show/status"
)

func newWatchCmd() *cobra.Command {
	var (
		o        status.WatchOptions
		interval float64
	)
	cmd := &cobra.Command{
		Use:   "watch [ROUTER] [IFACE]",
		Short: "watch live what becomes of packets, by interface and reason",
		Long: `Watch every interface on this machine that carries culvert, or those of one
router, or one interface: rates over the last interval of what was received,
forwarded, given to the slow path, dropped and lost, and for the chosen
interface the same by reason, the fastest first. Needs root.

On a terminal it is a table; keys: up, down or tab choose the interface, p holds
the figures, ? explains them, q leaves. Elsewhere, and with -n, it is a line for
each interface and reason that moved in an interval. Routers may come and go.`,
		Example: `  culvert watch
  culvert watch br1-ff00_0_1-2 eth1 -i 0.5
  culvert watch -n 10 | grep drop`,
		Args:              usageArgs(cobra.MaximumNArgs(2)),
		ValidArgsFunction: completeArgs(nothing, routers, routerInterfaces),
		RunE: func(cmd *cobra.Command, args []string) error {
			for n, arg := range args {
				*[]*string{&o.Router, &o.Interface}[n] = arg
			}
			o.Interval = time.Duration(interval * float64(time.Second))
			o.Out, o.Err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			err := status.Watch(cmd.Context(), o)
			if errors.Is(err, status.ErrOptions) {
				return usageError(err)
			}
			return err
		},
	}
	cmd.Flags().Float64VarP(&interval, "interval", "i", 1, "seconds between looks, at least 0.1")
	cmd.Flags().IntVarP(&o.Count, "count", "n", 0, "print lines, and stop after that many intervals")
	return cmd
}
