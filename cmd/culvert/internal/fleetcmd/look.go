// SPDX-License-Identifier: Apache-2.0

package fleetcmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/fleet"
)

func newStatusCmd() *cobra.Command {
	var (
		c      connection
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "show all nodes: revision, health, rates, addresses, and what differs",
		Long: `Show all nodes: the revision that each runs, health, packets a second that come in
and that are dropped, urgent changes, addresses that it announces, stages. Below them,
what is not as it is meant to be, and what is not the same on nodes of the same roles.

With -j, an object:

  cluster, current                    its name; revision and rollout
  nodes                               the state that each node reports
  away                                nodes that are not there
  urgents                             urgent changes
  differs                             what differs, in a line each`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.do(cmd, func(ctx context.Context, f *fleet.Fleet) error {
				s, err := f.Status(ctx)
				return print(cmd, asJSON, s, err, func() []string { return s.Lines() })
			})
		},
	}
	c.flags(cmd)
	cli.CanPrintJSON(cmd, &asJSON)
	return cmd
}

func newWatchCmd() *cobra.Command {
	var (
		c        connection
		interval time.Duration
		count    int
	)
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "show all nodes live",
		Long: `Show all nodes live, as 'culvert fleet status' does, with what differs above them.
Without a terminal, or with -n, it prints the lines of 'culvert fleet status' each
interval.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.do(cmd, func(ctx context.Context, f *fleet.Fleet) error {
				return f.Watch(ctx, interval, count, cmd.OutOrStdout())
			})
		},
	}
	cli.WatchFlags(cmd, &interval, &count)
	c.flags(cmd)
	return cmd
}

func newWhereCmd() *cobra.Command {
	var (
		c      connection
		scope  scopeFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "where {ADDRESS | VIP | SOURCE DESTINATION PROTOCOL}",
		Short: "ask all nodes what they do with an address, VIP or flow",
		Long: `Ask all nodes what they do with an address, a VIP, or a flow, whose SOURCE and
DESTINATION have ports and whose PROTOCOL is tcp or udp: which announce the address,
which sets have it; of a flow also where it is in the VIP's ring, which backend that
gives it and which one it has, and which rule of the filter its first packet hits.
Nodes that say the same are shown together; those that do not answer within 5 s are
listed. No packet is sent, and no counter changes.

With -j, an object with answers (node, lines, errors, where) and silent.`,
		Example: `  culvert fleet where 192.0.2.1
  culvert fleet where 192.0.2.1:80/tcp --role lb
  culvert fleet where 198.51.100.7:40000 192.0.2.1:80 tcp`,
		Args: cli.UsageArgs(cobra.RangeArgs(1, 3)),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := scope.scope()
			if err != nil {
				return err
			}
			if err := fleet.CheckWhere(args); err != nil {
				return err
			}
			return c.do(cmd, func(ctx context.Context, f *fleet.Fleet) error {
				a, err := f.Where(ctx, args, s)
				return print(cmd, asJSON, a, err, func() []string { return a.Lines() })
			})
		},
	}
	scope.flags(cmd)
	c.flags(cmd)
	cli.CanPrintJSON(cmd, &asJSON)
	return cmd
}
