// SPDX-License-Identifier: Apache-2.0

package routecmd

import (
	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/node"
	"culvert/internal/route/routeview"
)

func newShowCmd() *cobra.Command {
	var (
		on              string
		asJSON, verbose bool
	)
	cmd := &cobra.Command{
		Use:   "show",
		Short: "show the IP router's mirror, next hops, devices and packets",
		Long: `Show every IP router on this machine, in all network namespaces, or one. Prefixes
that are longest for no address are not counted. The mirror consists of blocks below
its first level. Entries are lost if there was no block for them; the kernel is asked
then. blocks4 and blocks6 of [route] set the number of blocks. Packets are those of
all interfaces together; with -v a sentence explains each reason.

With -j, an object {"routers": [...]} whose members are:

  router, netns, here                 as in 'culvert status'
  memory_bytes                        of the mirror
  ipv4, ipv6                          by: mirror, stale (asks the kernel, because
                                      nobody says that the mirror is current),
                                      none (no mirror) or kernel (left to it);
                                      why, stale_seconds; prefixes, blocks_used,
                                      blocks_total, lost
  hops                                next hops in use, by what happens to packets
  neighbors                           known on connected networks
  devices                             ifindex, interface, port, vlan, mac,
                                      forward4, forward6, rp_filter, redirects,
                                      xmit, linear_only
  reasons                             reason, verdict, limited, text (that
                                      explains it), packets, bytes`,
		Example: "  culvert route show\n  culvert route show -j | jq '.routers[].ipv4'",
		Args:    cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return routeview.WriteStats(on, asJSON, verbose, cmd.OutOrStdout())
		},
	}
	cli.OnlyFlag(cmd, &on, node.IPRouters)
	cli.CanPrintJSON(cmd, &asJSON)
	cli.VerboseFlag(cmd, &verbose)
	return cmd
}
