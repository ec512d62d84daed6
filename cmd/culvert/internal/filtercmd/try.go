// SPDX-License-Identifier: Apache-2.0

package filtercmd

import (
	"errors"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/edit"
	"culvert/internal/filter"
	"culvert/internal/filter/filterview"
	"culvert/internal/node"
	"culvert/internal/show/usage"
)

func newTestCmd() *cobra.Command {
	var (
		o            filterview.TestOptions
		spec         filter.Spec
		config, file string
	)
	cmd := &cobra.Command{
		Use:   "test PCAP [ACTION [RATE] 'EXPRESSION']",
		Short: "show which rule decides about each packet of a pcap file",
		Long: `Show which rule decides about each packet of a pcap or pcapng file (- for standard
input), and the verdict: number, seconds since the first packet, verdict, rule, and
a summary of the packet; then how many packets each rule matched.

The rules are the running ones, or those of a configuration file (-c) with its
sets, or one rule on the command line, with the flags of 'culvert filter add'
except -i, and the running sets. The program is the one that would run on an
interface, but it is not attached, and running counters do not change. A limit
never drops here, since the speed of reading a file means nothing. Protected
services are left out.

A rule for an interface matches if -i names that interface.

With -j, an object {"packets": [...], "totals": {...}}:

  packets                             number, time, length, captured (if cut),
                                      summary, verdict (drop or pass), rule,
                                      matched, short, malformed
  totals                              packets, dropped, passed, cut, short,
                                      malformed, rules (rule, matched, decided)
  error                               why it ended early, if it did`,
		Example: `  culvert filter test attack.pcap
  culvert filter test attack.pcap drop udp port 53 and greater 512
  culvert filter test -c culvert.toml - < attack.pcapng`,
		Args:              cli.UsageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, nil, cli.Fixed(filter.Actions...)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Path, o.Stdin, o.Out = args[0], cmd.InOrStdin(), cmd.OutOrStdout()
			rest := args[1:]
			switch {
			case config != "" && (len(rest) > 0 || file != ""):
				return usage.Error(errors.New("a rule beside --config: give one of them"))
			case o.Path == "-" && (file == "-" || len(rest) > 0 && rest[len(rest)-1] == "-"):
				return usage.Error(errors.New("standard input can be the packets or the expression, not both"))
			case config != "":
				var err error
				if o.Filter, o.Members, err = node.LoadFilter(config); err != nil {
					return err
				}
			case len(rest) > 0:
				if err := ruleArgs(cmd, &spec, file, rest); err != nil {
					return err
				}
				spec.Name = "rule"
				rule, err := spec.Rule()
				if err != nil {
					return edit.FilterError(err)
				}
				o.Filter = filterview.Only(rule)
			}
			return edit.FilterError(filterview.Test(o))
		},
	}
	cli.ConfigFlag(cmd, &config, "", "take the rules of the configuration `FILE`")
	cli.IncomingFlag(cmd, &o.Interface)
	cli.CanPrintJSON(cmd, &o.JSON)
	ruleFlags(cmd, &spec, &file)
	cli.OnFlag(cmd, &o.On, node.RoutersHere)
	return cmd
}
