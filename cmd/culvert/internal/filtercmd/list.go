// SPDX-License-Identifier: Apache-2.0

package filtercmd

import (
	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/edit"
	"culvert/internal/filter/filterview"
	"culvert/internal/node"
)

func newListCmd() *cobra.Command {
	var (
		on     string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list the rules in their order, with their counters",
		Long: `List the rules in their order with the packets and bytes that they have matched
since they were made, OVER for those over the rate of a limit, and each rule as it
would be typed; then sets and protected services. FROM tells whether they are from
the configuration file or made by hand. "not attached" names interfaces of a rule
to which the data plane is not attached, so that the rule never matches there.

"short" counts packets that end before a field that a rule's expression looks at;
such a rule does not match. "malformed" counts packets whose IP header contradicts
itself or the frame; they are in no set.

With -j, an object with the members:

  router, netns, interfaces           the data plane
  on                                  whether packets pass the filter at all
  rules                               in their order:
      rule, action, words, from         words: as it would be typed
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
		Args:    cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return edit.FilterError(filterview.List(on, asJSON, cmd.OutOrStdout()))
		},
	}
	cli.CanPrintJSON(cmd, &asJSON)
	cli.OnFlag(cmd, &on, node.RoutersHere)
	return cmd
}

func newWatchCmd() *cobra.Command {
	var (
		o filterview.WatchOptions
	)
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "watch live how fast the rules match",
		Long: `Watch how many packets and bits a second each rule matches, and what of a limit
is over its rate.

On a terminal it is a table; keys: up and down scroll, p pauses, q quits.
Elsewhere, and with -n, it is a line for each rule that matched in an interval.
Rules may be added and deleted meanwhile.`,
		Example: "  culvert filter watch\n  culvert filter watch -n 10 --interval 0.5",
		Args:    cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = cmd.OutOrStdout()
			return edit.FilterError(filterview.Watch(cmd.Context(), o))
		},
	}
	cli.WatchFlags(cmd, &o.Interval, &o.Count)
	cli.OnFlag(cmd, &o.On, node.RoutersHere)
	return cmd
}
