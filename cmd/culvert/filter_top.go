// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"culvert/internal/filter/filterview"
	"culvert/internal/node"
)

func newFilterTopCmd() *cobra.Command {
	var (
		o   filterview.TopOptions
		off bool
	)
	cmd := &cobra.Command{
		Use:   "top",
		Short: "show who sends most, in the last seconds",
		Long: `Show who has sent most packets in the last three seconds, in front of all rules:
by source, destination, source prefix (/24 and /48) or destination port.

Packets are told apart by a table of fixed size in the driver while this runs,
and it costs nothing otherwise. SHARE is what a talker has at least, ERROR what
may be added to it: the figures are bounds that hold. The last line says what
anybody can have who is not in the list.

On a terminal it is a live table; keys: up and down scroll, p holds the figures,
q leaves. Elsewhere, with --once and with -j, it looks for some four seconds,
writes one list and ends. --off ends what a killed one has left on.

With -j, an object with the members:

  router, by, seconds                 what was looked at
  packets, bytes                      of all
  others_at_most                      packets of anybody who is not listed
  talkers                             talker, packets (at most), error, bytes`,
		Example: "  culvert filter top\n  culvert filter top --by port -n 5 --once",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if off {
				return filterError(filterview.TopOff(o.On))
			}
			o.Out = cmd.OutOrStdout()
			return filterError(filterview.Top(cmd.Context(), o))
		},
	}
	cmd.Flags().StringVar(&o.By, "by", "src", "tell packets apart by src, dst, prefix or port")
	cmd.Flags().IntVarP(&o.Count, "count", "n", 20, "show `N` talkers at most")
	cmd.Flags().BoolVar(&o.Once, "once", false, "write one list and end")
	canPrintJSON(cmd, &o.JSON)
	cmd.Flags().BoolVar(&off, "off", false, "stop telling packets apart")
	completeFlag(cmd, "by", fixed("src", "dst", "prefix", "port"))
	onFlag(cmd, &o.On, node.RoutersHere)
	return cmd
}
