// SPDX-License-Identifier: Apache-2.0

package routecmd

import (
	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/node"
	"culvert/internal/route/routeview"
)

func newGetCmd() *cobra.Command {
	var (
		o      routeview.GetOptions
		from   string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "get ADDRESS",
		Short: "show what the fast path does with a packet, and what the kernel would do",
		Long: `Show what the fast path does with a packet to ADDRESS, and why, and what the
kernel would do with it: a line each, and whether they agree. The exit status
is 1 if they do not. The answer is worked out from the maps that the program reads;
no packet is made, and nothing is counted.

The packet is TCP or UDP, without options, fits the MTU, and has hops left. By
default it comes in by an interface that forwards and does not lead to ADDRESS,
from an address next to the interface's own.

Stages that a packet meets before the IP router are not asked, but named.

If the fast path asks the kernel about a packet, it does what the kernel answers, so
there can be no difference.

With -j, an object with the members:

  router, to, from, interface         the packet
  fast_path                           verdict and reason as in 'culvert status',
                                      by (mirror or kernel), prefix, text, and
                                      interface, mac, vlan, mtu of the way out
  kernel                              type, prefix, gateway, interface,
                                      multipath, text
  agree, difference                   whether they do, and how they do not
  not_asked                           a line for each other stage that may take
                                      the packet first`,
		Example: `  culvert route get 192.0.2.7
  culvert route get 2001:db8::7 --from 2001:db8:1::2 -i eth1`,
		Args: cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.To, err = cli.Address(args[0]); err != nil {
				return err
			}
			if from != "" {
				if o.From, err = cli.Address(from); err != nil {
					return err
				}
			}
			o.NotAsked = node.BeforeRoute
			return routeview.Get(o, asJSON, cmd.OutOrStdout())
		},
	}
	cli.OnFlag(cmd, &o.Name, node.IPRouters)
	cmd.Flags().StringVar(&from, "from", "", "the packet comes from `ADDRESS`")
	cli.IncomingFlag(cmd, &o.In)
	cli.CanPrintJSON(cmd, &asJSON)
	return cmd
}
