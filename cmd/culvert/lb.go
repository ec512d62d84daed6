// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"culvert/internal/lb/lbstage"
	"culvert/internal/node"
)

func newLBCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lb",
		Short: "the load balancer: VIPs, and the backends that packets to them go to",
		Long: `The layer-4 load balancer of a running data plane. Needs root.

Packets to a VIP go to one of its backends, encapsulated; the backend answers to
the client itself. A VIP is an address, a protocol and a port, or all ports:

  192.0.2.1:80/tcp   [2001:db8::1]:443/udp   192.0.2.1/tcp

Each change is made at once: a packet meets the backends as they were, or as
they are to be, and flows stay with the backend that they have. VIPs that are to
be there from the start belong into the [lb] table of the configuration
(see 'culvert run --help'), whose process follows the routes to the backends,
checks them, and announces VIPs. On backends 'culvert lb decap' takes the
encapsulation off.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: needVerb,
	}
	cmd.AddCommand(
		newLBShowCmd(), newLBExplainCmd(), newLBFlowsCmd(), newLBVIPCmd(), newLBBackendCmd(), newLBDrainCmd(), newLBUndrainCmd(), newLBDecapCmd(), newLBSeedCmd(),
	)
	return cmd
}

func lbVIPs([]string) []string { return node.BalanceVIPs() }

func lbBackends(args []string) []string { return node.BalanceBackends(args[0]) }

func newLBSeedCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "seed",
		Short: "print the seed of this machine's rings, to share it",
		Long: `Print the seed that decides, with VIPs and backends, which backend a new flow
gets. It is made at the first start and kept in /var/lib/culvert/lb-seed (mode
0600), unless [lb] has a seed of its own. Who knows it can choose flows
that all meet on one backend.

Machines with the same VIPs need the same one: put it there and start culvert
again. 'culvert lb show' has its ID, which is no secret, to compare.`,
		Example: `  culvert lb seed | ssh lb2 'install -D -m 0600 /dev/stdin /var/lib/culvert/lb-seed'`,
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return lbstage.ShowSeed(cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
}
