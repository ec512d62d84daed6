// SPDX-License-Identifier: Apache-2.0

package clustercmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/cluster/access"
)

// newRevokeCmd is "culvert cluster revoke".
func newRevokeCmd() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "revoke {NAME | KIND:NAME[:ID]}",
		Short: "end the certificates of a node or an operator",
		Long: `End all certificates of a node or an operator, or the one with an ID. etcd knows
its user no more, and refuses what it asks from then on. What it watches already goes
on until its connection ends, at the latest with a restart of etcd's members. A node
that was revoked goes on with what it runs.`,
		Example: `  culvert cluster revoke lb1
  culvert cluster revoke writer:alice:5f0c22d1`,
		Args:              cli.UsageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDoor(cmd.Context(), dir, func(ctx context.Context, d *access.Door) error {
				gone, err := d.Expel(ctx, args[0])
				for _, u := range gone {
					fmt.Fprintf(cmd.OutOrStdout(), "%s is revoked.\n", u)
				}
				return err
			})
		},
	}
	dirFlag(cmd, &dir)
	return cmd
}
