// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/decap"
	"culvert/internal/node"
	"culvert/internal/show/usage"
)

func newRunCmd() *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "attach, keep the data plane in step with the system, serve metrics",
		Long: `Run what a configuration file asks for. The process ends on SIGTERM or SIGINT
without detaching: the data plane goes on, and the next run adopts it.

` + aboutConfig,
		Example: "  culvert run\n  culvert run -c edge.toml",
		Args:    cli.FileByFlag,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.HaveConfig(cmd, config); err != nil {
				return err
			}
			return node.Run(cmd.Context(), config)
		},
	}
	cli.ConfigFlag(cmd, &config, cli.DefaultConfig, "configuration `FILE`, see culvert.toml(5)")
	return cmd
}

func newAttachCmd() *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "attach [IFACE...]",
		Short: "attach a data plane without a process",
		Long: `Attach what a configuration file (see 'culvert run --help') asks for to the
named interfaces, or to those of the file if none is named, and exit. The data
plane stays. There is no slow path: packets that the fast path does not forward
itself go to the kernel. Links count as up, and hosts of the AS are reached only
with IP forwarding on. The key comes from the router's keys directory if there is
one, or from 'culvert key'.

If the data plane is attached already, attach swaps the program and brings the
new configuration into force without losing a packet. Interfaces
that are attached and not named are detached. While a process serves the
router attach refuses, even if its interfaces were detached.`,
		Example:           "  culvert attach\n  culvert attach eth1 eth2\n  culvert attach -c edge.toml eth1 eth2",
		ValidArgsFunction: cli.CompleteArgs(cli.HostInterfaces),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.HaveConfig(cmd, config); err != nil {
				return err
			}
			return node.Attach(cmd.Context(), config, args, cmd.OutOrStdout())
		},
	}
	cli.ConfigFlag(cmd, &config, cli.DefaultConfig, "configuration `FILE`, see culvert.toml(5)")
	return cmd
}

func newDetachCmd() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "detach {IFACE... | --all}",
		Short: "detach the data plane from interfaces of this network namespace",
		Long: `Detach the data plane from interfaces of this network namespace. When the last
interface of a router is detached, its counters and keys are removed. The program
of 'culvert lb decap' is detached too.

With --all, also remove what is left of routers, in any network namespace, that
are not attached to anything and not served by a process.`,
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: cli.CompleteArgs(func(args []string) []string {
			return append(cli.AttachedInterfaces(args), cli.Unused(decap.Interfaces(), args)...)
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case all == (len(args) > 0):
				return usage.Error(errors.New("name interfaces, or use --all"))
			case all:
				return node.DetachAll(cmd.OutOrStdout())
			default:
				return node.Detach(args, cmd.OutOrStdout())
			}
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every interface, with counters and keys")
	return cmd
}
