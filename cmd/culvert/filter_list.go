// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/cobra"

	"culvert/internal/filter/filterview"
	"culvert/internal/node"
)

func newFilterListCmd() *cobra.Command {
	var (
		on     string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list the rules in their order, and what they have counted",
		Long: `List the rules in their order with the packets and bytes they have matched since
they were made, OVER for those that were over the rate of a limit, and each rule
as one would type it; then sets and protected services. FROM tells whether the
configuration file or somebody by hand has made them, "not attached" names
interfaces of a rule that the data plane is not on: it never matches there.

"short" are packets that ended before what a rule's expression asked for, which
then does not match; "malformed" those with an IP header that contradicts itself
or the frame, which are in no set.

With -j, an object with the members:

  router, netns, interfaces           the data plane
  on                                  whether packets pass the filter at all
  rules                               in their order:
      rule, action, words, from         words: as one would type it
      packets, bytes                    that it has matched
      over                              packets, bytes over the rate of a limit
      interfaces, src, dst              what it asks for, with
      expression, program                the expression as text and classic BPF
      limit                             rate, unit, per, burst, entries
      not_attached                      interfaces the data plane is not on
  short, malformed                    packets, bytes
  sets                                set, type, from, count
  services                            address, from, forwarded, mss, wscale
  top                                 what 'culvert filter top' counts by, if on`,
		Example: "  culvert filter list\n  culvert filter list -j | jq '.rules[] | {rule, packets}'",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return filterError(filterview.List(on, asJSON, cmd.OutOrStdout()))
		},
	}
	canPrintJSON(cmd, &asJSON)
	onFlag(cmd, &on, node.RoutersHere)
	return cmd
}

func newFilterWatchCmd() *cobra.Command {
	var (
		o        filterview.WatchOptions
		interval float64
	)
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "watch live how fast the rules match",
		Long: `Watch how many packets and bits a second each rule matches, and what of a limit
is over its rate.

On a terminal it is a table; keys: up and down scroll, p holds the figures, q
leaves. Elsewhere, and with -n, it is a line for each rule that matched in an
interval. Rules may come and go.`,
		Example: "  culvert filter watch\n  culvert filter watch -n 10 --interval 0.5",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Interval, o.Out = time.Duration(interval*float64(time.Second)), cmd.OutOrStdout()
			return filterError(filterview.Watch(cmd.Context(), o))
		},
	}
	watchFlags(cmd, &interval, &o.Count)
	onFlag(cmd, &o.On, node.RoutersHere)
	return cmd
}
