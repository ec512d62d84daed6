// SPDX-License-Identifier: Apache-2.0

package lbcmd

import (
	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/decap"
	"culvert/internal/decap/decapplane"
)

func newDecapCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "decap",
		Short: "decapsulate IPIP and GUE packets to this host, on a backend",
		Long: `Decapsulate packets of tunnels that end on this host, in the driver. The kernel
gets the inner packet as if it had come in by that interface. No tunnel device and
no process is needed.

Packets of IPIP (protocols 4 and 41) and GUE (variants 0 and 1) are decapsulated,
over IPv4 and IPv6, with IPv4 and IPv6 inside. All others go to the kernel
unchanged, except those that the end of a tunnel has to drop (RFC 6040).`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: cli.NeedVerb,
	}
	cmd.AddCommand(newDecapAddCmd(), newDecapDelCmd(), newDecapShowCmd())
	return cmd
}

func newDecapAddCmd() *cobra.Command {
	var f decap.Flags
	cmd := &cobra.Command{
		Use:   "add IFACE...",
		Short: "let tunnels end on interfaces",
		Long: `Let tunnels end on interfaces. Adding an interface again with other options
replaces the options and keeps the counters.

Only packets to addresses that this host had at that time are decapsulated. Whoever
can send such packets can send anything into this host: restrict the balancers with
--from, and the destinations with --vip. One of the two has to be given; --from any
accepts every sender, with a warning.`,
		Example:           "  culvert lb decap add eth0 --from 10.200.0.0/16 --vip 192.0.2.1",
		Args:              cli.UsageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(cli.HostInterfaces),
		RunE: func(cmd *cobra.Command, args []string) error {
			return decap.Attach(args, f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().IntVar(&f.GUEPort, "gue-port", decapplane.DefaultGUEPort, "UDP `PORT` of GUE")
	cmd.Flags().StringArrayVar(&f.From, "from", nil, "`PREFIX` that balancers send from (outer source), or any; may be repeated")
	cmd.Flags().StringArrayVar(&f.VIP, "vip", nil, "`ADDRESS` that clients send to (inner destination); may be repeated")
	cmd.Flags().StringArrayVar(&f.Local, "local", nil, "`ADDRESS` that balancers send to (outer destination; default: all of this host); may be repeated")
	cmd.Flags().BoolVar(&f.Generic, "generic", false, "attach in generic mode, for drivers without native XDP")
	return cmd
}

func newDecapDelCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "del IFACE...",
		Short:             "stop tunnels from ending on interfaces",
		Long:              "Stop tunnels from ending on interfaces: on all that are named, or on none after an error.",
		Example:           "  culvert lb decap del eth0",
		Args:              cli.UsageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(decapInterfaces),
		RunE: func(cmd *cobra.Command, args []string) error {
			return decap.Detach(args, cmd.OutOrStdout())
		},
	}
}

func newDecapShowCmd() *cobra.Command {
	var asJSON, verbose bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "show where tunnels end: options, counters",
		Long: `Show where tunnels end in this network namespace, with options and counters. With
-v a sentence explains each reason.

With -j, an object {"decap": [...]} whose members are:

  interface, mode, gue_port     mode: native or generic
  unattached                    gone or replaced, if the interface was deleted since
  local, from, vips             as they are in force; [] allows all
  open                          neither from nor vips restricts senders
  reasons                       verdict (decap, pass, drop), reason, text (that
                                explains it), packets, bytes`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return decap.List(asJSON, verbose, cmd.OutOrStdout())
		},
	}
	cli.CanPrintJSON(cmd, &asJSON)
	cli.VerboseFlag(cmd, &verbose)
	return cmd
}

func decapInterfaces(args []string) []string { return cli.Unused(decap.Interfaces(), args) }
