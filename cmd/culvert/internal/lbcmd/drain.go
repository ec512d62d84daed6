// SPDX-License-Identifier: Apache-2.0

package lbcmd

import (
	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/edit"
	"culvert/internal/node"
)

func newDrainCmd(changing cli.Changing) *cobra.Command {
	return drainCmd(changing, true, &cobra.Command{
		Use:   "drain VIP [BACKEND]",
		Short: "keep new flows from a backend, or let a VIP's address be withdrawn",
		Long: `Keep new flows from a backend; flows that it has stay. Without BACKEND, let the
address of the VIP be withdrawn from BGP, unless another VIP of that address is
still in service; packets that come in are still sent to backends.

It lasts until 'culvert lb undrain', even if the configuration is read again.`,
		Example: "  culvert lb drain 192.0.2.1:80/tcp 10.0.0.11",
	})
}

func newUndrainCmd(changing cli.Changing) *cobra.Command {
	return drainCmd(changing, false, &cobra.Command{
		Use:   "undrain VIP [BACKEND]",
		Short: "undo 'culvert lb drain'",
	})
}

func drainCmd(changing cli.Changing, drained bool, cmd *cobra.Command) *cobra.Command {
	cmd.Args = cli.UsageArgs(cobra.RangeArgs(1, 2))
	cmd.ValidArgsFunction = cli.CompleteArgs(cli.Nothing, lbVIPs, lbBackends)
	change := changing(cmd, node.LBDataPlanes)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		d := edit.Drain{VIP: args[0]}
		if len(args) == 2 {
			d.Backend = &args[1]
		}
		if drained {
			return change.Run(cmd, &d)
		}
		return change.Run(cmd, &edit.Undrain{Drain: d})
	}
	return cmd
}
