// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"culvert/internal/node"
)

func newRunCmd() *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "attach, keep the data plane in step with the system, serve metrics",
		Long: `Run what a configuration file asks for. Ends on SIGTERM or SIGINT without
detaching: the data plane goes on, and the next run takes it over.

` + aboutConfig,
		Example: "  culvert run\n  culvert run -c edge.toml",
		Args:    fileByFlag,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := haveConfig(cmd, config); err != nil {
				return err
			}
			return node.Run(cmd.Context(), config)
		},
	}
	configFlag(cmd, &config, defaultConfig, "configuration `FILE`, see culvert.toml(5)")
	return cmd
}

func newAttachCmd() *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "attach IFACE...",
		Short: "attach once and leave: a data plane without a process",
		Long: `Attach what a configuration file (see 'culvert run --help') asks for to the
given interfaces, and leave. The data plane stays. There is no slow path: what
the fast path does not forward itself goes to the kernel. Links count as up, and
hosts of the AS are reached only with IP forwarding on. A key comes from the
router's keys directory if it has one, or by 'culvert key'.

On a data plane that is attached already, swaps the program and takes over
changes of the configuration without losing a packet. Name every interface:
those that are attached and not named are taken off. While a process serves the
router this is refused, also when its interfaces were detached.`,
		Example:           "  culvert attach eth1 eth2\n  culvert attach -c edge.toml eth1 eth2",
		Args:              usageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: completeArgs(hostInterfaces),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := haveConfig(cmd, config); err != nil {
				return err
			}
			return node.Attach(cmd.Context(), config, args, cmd.OutOrStdout())
		},
	}
	configFlag(cmd, &config, defaultConfig, "configuration `FILE`, see culvert.toml(5)")
	return cmd
}

func newDetachCmd() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "detach {IFACE... | --all}",
		Short: "take the data plane off interfaces of this network namespace",
		Long: `Take the data plane off interfaces of this network namespace. With the last
interface of a router its counters and keys go. The end of tunnels that
'culvert lb decap' has attached is taken off too.

With --all, also remove what is left of routers, of any network namespace, that
are attached to nothing any more and not served by a process.`,
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: completeArgs(func(args []string) []string {
			return append(attachedInterfaces(args), decapInterfaces(args)...)
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case all == (len(args) > 0):
				return usageError(errors.New("name interfaces, or say --all"))
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
