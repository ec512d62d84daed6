// SPDX-License-Identifier: Apache-2.0

package fleetcmd

import (
	"context"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/fleet"
)

func newMaintainCmd() *cobra.Command {
	var (
		c       connection
		comment string
		force   bool
	)
	cmd := &cobra.Command{
		Use:   "maintain NODE",
		Short: "have a node withdraw, and say when it is safe to stop",
		Long: `Have a node withdraw its addresses, wait until its neighbors have moved and no new
flows come, and say then that it is safe to stop. It stays in maintenance, also over a
restart, until 'culvert fleet resume'. If the command is interrupted, the node goes on
withdrawing.

A node that announces nothing, such as a filter in front of others, has nothing that
moves away: the command says so, and packets go on to come.

It is refused if no other node announces an address that this one does, or if no
other node with one of its roles is in service.`,
		Example: "  culvert fleet maintain lb2 -m 'new disk'",
		Args:    cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.do(cmd, func(ctx context.Context, f *fleet.Fleet) error {
				return f.Maintain(ctx, args[0], comment, force, teller(cmd))
			})
		},
	}
	cmd.Flags().StringVarP(&comment, "message", "m", "", "a `COMMENT` for the history")
	cmd.Flags().BoolVar(&force, "force", false, "also if no other node announces its addresses, or has its role")
	c.flags(cmd)
	return cmd
}

func newResumeCmd() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:   "resume NODE",
		Short: "end a node's maintenance: it announces again what it had withdrawn",
		Long: `End a node's maintenance, and wait for 10 s at most until it announces again what it
announced before. Otherwise the command says what is missing, and has exit status 1;
the maintenance is over all the same.`,
		Args: cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.do(cmd, func(ctx context.Context, f *fleet.Fleet) error { return f.ResumeNode(ctx, args[0], teller(cmd)) })
		},
	}
	c.flags(cmd)
	return cmd
}

func newForgetCmd() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:   "forget NODE",
		Short: "do not miss a node any more that is not there",
		Long: `Take a node off the list of those that are missed while they are not there. A rollout
that meets it again puts it back. Its certificate stays valid: see 'culvert cluster
revoke'.`,
		Args: cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.do(cmd, func(ctx context.Context, f *fleet.Fleet) error {
				if err := f.Forget(ctx, args[0]); err != nil {
					return err
				}
				teller(cmd).Line("%s is not missed any more", args[0])
				return nil
			})
		},
	}
	c.flags(cmd)
	return cmd
}
