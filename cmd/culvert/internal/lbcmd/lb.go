// SPDX-License-Identifier: Apache-2.0

// Package lbcmd has the constructors of 'culvert lb'.
package lbcmd

import (
	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/lb/lbstage"
	"culvert/internal/node"
)

// New returns 'culvert lb' with its verbs.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lb",
		Short: "the load balancer: VIPs, and the backends that packets to them go to",
		Long: `The layer-4 load balancer of a running data plane. Needs root.

Packets to a VIP are encapsulated and sent to one of its backends. The backend
answers the client directly. A VIP is an address, a protocol and a port, or all
ports:

  192.0.2.1:80/tcp   [2001:db8::1]:443/udp   192.0.2.1/tcp

A change takes effect at once: a packet meets either the old backends or the new
ones, and flows keep their backend. VIPs that should be there from the start belong
into the [lb] table of the configuration (see 'culvert run --help'). Its process
follows the routes to the backends, checks them, and announces VIPs. On backends
'culvert lb decap' decapsulates the packets.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: cli.NeedVerb,
	}
	cmd.AddCommand(
		newShowCmd(), newExplainCmd(), newFlowsCmd(), newVIPCmd(cli.ChangeFlags), newBackendCmd(cli.ChangeFlags), newDrainCmd(cli.ChangeFlags), newUndrainCmd(cli.ChangeFlags), newDecapCmd(), newSeedCmd(), newDumpCmd(),
	)
	return cmd
}

// Urgent returns the verbs that may also be carried out on all nodes of a fleet, with what runs them there.
func Urgent(changing cli.Changing) []*cobra.Command {
	return []*cobra.Command{newVIPCmd(changing), newBackendCmd(changing), newDrainCmd(changing), newUndrainCmd(changing)}
}

func lbVIPs([]string) []string { return node.LBVIPs() }

func lbBackends(args []string) []string { return node.LBBackends(args[0]) }

func newSeedCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "seed",
		Short: "print the seed of this machine's rings, to share it",
		Long: `Print the seed that decides, with VIPs and backends, which backend a new flow
gets. It is made at the first start and kept in /var/lib/culvert/lb-seed (mode
0600), unless [lb] has a seed of its own. If the load balancer that runs uses such a
one, there is nothing to print: an error has the IDs of both. Whoever knows the seed
can choose flows that all go to one backend.

Machines with the same VIPs need the same seed: copy the file and start culvert
again. 'culvert lb show' has the seed's ID, which is no secret, to compare.`,
		Example: `  culvert lb seed | ssh lb2 'install -D -m 0600 /dev/stdin /var/lib/culvert/lb-seed'`,
		Args:    cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return lbstage.ShowSeed(cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
}
