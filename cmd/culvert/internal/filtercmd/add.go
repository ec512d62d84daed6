// SPDX-License-Identifier: Apache-2.0

package filtercmd

import (
	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/edit"
	"culvert/internal/filter"
	"culvert/internal/node"
)

func newAddCmd(changing cli.Changing) *cobra.Command {
	var (
		file    string
		spec    filter.Spec
		at      filter.Place
		replace bool
		change  cli.Runner
	)
	cmd := &cobra.Command{
		Use:   "add [flags] ACTION [RATE] ['EXPRESSION' | -f FILE | -]",
		Short: "add a rule",
		Long: `Add a rule behind the others, or where --first or --before says.

The actions are:

  drop        drop the packet
  pass        skip the rest of the filter
  count       count it, and go on with the next rule
  limit RATE  drop what is over RATE, and go on with the next rule for the rest

An expression is one of libpcap (pcap-filter(7)) for Ethernet frames, in one
argument or several. Instead of it, - reads standard input and -f reads a file: an
expression, or a program as tcpdump -ddd or -dd prints it. A rule matches if its
expression, its sets and its interfaces all match. A rule without these matches
every packet; drop and pass need --all as a confirmation then.

RATE is in packets (1000/s, 1000pps, 10kpps, 1Mpps), bytes (500kB/s) or bits
(10Mbit/s) of whole frames; k, M and G are powers of 1000. With --per, each source
or destination address has a rate of its own, or each prefix: of IPv4 and IPv6
(src/24,48), or of one of them (src/24, dst/64) and whole addresses of the other.
If two rules limit a packet, both apply.

A rule is refused if it does not compile, if it asks for what XDP cannot see
(inbound, outbound), or if it names an unknown set or interface. The other rules
stay as they are then.`,
		Example: `  culvert filter add drop icmp
  culvert filter add --name dns limit 1kpps --per src/24,48 udp port 53
  culvert filter add -i eth1 --src @bad --src '!@good' drop
  tcpdump -ddd icmp | culvert filter add --name noicmp drop -`,
		Args:              cli.UsageArgs(cobra.ArbitraryArgs),
		ValidArgsFunction: completeRule,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := ruleArgs(cmd, &spec, file, args); err != nil {
				return err
			}
			rule := edit.NewRule(spec)
			rule.First, rule.Before, rule.Replace = at.First, at.Before, replace
			return change.Run(cmd, &rule)
		},
	}
	cmd.Flags().StringVar(&spec.Name, "name", "", "call the rule `NAME` (default rule1, rule2 and so on)")
	cmd.Flags().BoolVar(&at.First, "first", false, "in front of all rules")
	cmd.Flags().StringVar(&at.Before, "before", "", "put the rule in front of the rule `NAME`")
	cmd.Flags().BoolVar(&replace, "replace", false, "replace the rule --name and keep its counters")
	cli.CompleteFlag(cmd, "name", func([]string) []string { return node.FilterRules() })
	cli.CompleteFlag(cmd, "before", func([]string) []string { return node.FilterRules() })
	cmd.Flags().StringArrayVarP(&spec.Interfaces, "interface", "i", nil, "the rule is for the interface `IFACE`; may be repeated (default: all)")
	cli.CompleteFlag(cmd, "interface", cli.AttachedInterfaces)
	ruleFlags(cmd, &spec, &file)
	change = changing(cmd, node.RoutersHere)
	return cmd
}

func newDelCmd(changing cli.Changing) *cobra.Command {
	var change cli.Runner
	cmd := &cobra.Command{
		Use:               "del NAME...",
		Short:             "delete rules, with their counters",
		Long:              "Delete rules, with their counters: all that are named, or none.",
		Args:              cli.UsageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(filterRules),
		RunE: func(cmd *cobra.Command, args []string) error {
			return change.Run(cmd, &edit.RuleDel{Rules: args})
		},
	}
	change = changing(cmd, node.RoutersHere)
	return cmd
}

func newFlushCmd(changing cli.Changing) *cobra.Command {
	var (
		q      edit.FilterFlush
		change cli.Runner
	)
	cmd := &cobra.Command{
		Use:   "flush",
		Short: "delete all rules",
		Long: `Delete all rules, with their counters; with --all also sets and protected
services. Those of the configuration file come back when it is read again.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return change.Run(cmd, &q)
		},
	}
	cmd.Flags().BoolVar(&q.All, "all", false, "sets and protected services too")
	change = changing(cmd, node.RoutersHere)
	return cmd
}
