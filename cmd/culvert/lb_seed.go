// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"culvert/internal/lb/lbstage"
)

func newLBSeedCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "seed",
		Short: "print the seed of this machine's rings, to share it",
		Long: `Print the seed that decides, with VIPs and backends, which backend a new flow
gets. It is made at the first start and kept in /var/lib/culvert/lb-seed (mode
0600), unless [balance] has a seed of its own. Who knows it can choose flows
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
