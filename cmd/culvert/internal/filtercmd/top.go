// SPDX-License-Identifier: Apache-2.0

package filtercmd

import (
	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/edit"
	"culvert/internal/filter/filterview"
	"culvert/internal/node"
)

func newTopCmd() *cobra.Command {
	var (
		o   filterview.TopOptions
		off bool
	)
	cmd := &cobra.Command{
		Use:   "top",
		Short: "show the heaviest talkers of the last seconds",
		Long: `Show who has sent most packets in the last three seconds, before any rule: by
source, destination, source prefix (/24 and /48) or destination port.

While this runs, the driver counts packets in a table of fixed size; otherwise it
costs nothing. SHARE is the least that a talker has sent, and ERROR is what may
have to be added: both are strict bounds. The last line has the most that a talker
outside the list can have sent.

On a terminal it is a live table; keys: up and down scroll, p pauses, q quits.
Elsewhere, with --once and with -j, it counts for about four seconds, writes one
list and ends. --off turns the counting off if a killed process has left it on.

With -j, an object with the members:

  router, by, seconds                 what was counted
  packets, bytes                      of all talkers
  others_at_most                      packets of a talker outside the list
  talkers                             talker, packets (at most), error, bytes`,
		Example: "  culvert filter top\n  culvert filter top --by port -n 5 --once",
		Args:    cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if off {
				return edit.FilterError(filterview.TopOff(o.On))
			}
			o.Out = cmd.OutOrStdout()
			return edit.FilterError(filterview.Top(cmd.Context(), o))
		},
	}
	cmd.Flags().StringVar(&o.By, "by", "src", "count by `KEY`: src, dst, prefix or port")
	cmd.Flags().IntVarP(&o.Count, "count", "n", 20, "show `N` talkers at most")
	cmd.Flags().BoolVar(&o.Once, "once", false, "write one list and end")
	cli.CanPrintJSON(cmd, &o.JSON)
	cmd.Flags().BoolVar(&off, "off", false, "turn the counting off")
	cli.CompleteFlag(cmd, "by", cli.Fixed("src", "dst", "prefix", "port"))
	cli.OnFlag(cmd, &o.On, node.RoutersHere)
	return cmd
}
