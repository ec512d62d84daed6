// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"culvert/internal/decap"
	"culvert/internal/decap/decapplane"
)

func newLBDecapCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "decap",
		Short: "take IPIP and GUE off packets that come to this host, on a backend",
		Long: `Take the outer headers off packets in tunnels that end on this host, in the
driver: the kernel gets the inner packet as if it had come by that interface. No
tunnel device and no process is needed.

Taken off are IPIP (protocols 4 and 41) and GUE (variants 0 and 1), over IPv4 and
IPv6, with IPv4 and IPv6 in it. Everything else goes to the kernel unchanged,
but for packets that RFC 6040 has the end of a tunnel drop.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: needVerb,
	}
	cmd.AddCommand(newLBDecapAddCmd(), newLBDecapDelCmd(), newLBDecapShowCmd())
	return cmd
}

func newLBDecapAddCmd() *cobra.Command {
	var f decap.Flags
	cmd := &cobra.Command{
		Use:   "add IFACE...",
		Short: "have tunnels end on interfaces",
		Long: `Have tunnels end on interfaces. Adding one again with other options swaps them
in place; counters stay.

Only packets to addresses of this host, as they were when it was attached, are
taken off. Who can send such packets can send anything into this host: say with
--from where the balancers are, and with --vip what they may send to. One of them
has to be given; --from any takes what anybody sends, and is warned of.`,
		Example:           "  culvert lb decap add eth0 --from 10.200.0.0/16 --vip 192.0.2.1",
		Args:              usageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: completeArgs(hostInterfaces),
		RunE: func(cmd *cobra.Command, args []string) error {
			return decap.Attach(args, f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().IntVar(&f.GUEPort, "gue-port", decapplane.DefaultGUEPort, "UDP port of GUE")
	cmd.Flags().StringArrayVar(&f.From, "from", nil, "prefix that balancers send from (outer source), or any; may be repeated")
	cmd.Flags().StringArrayVar(&f.VIP, "vip", nil, "address that clients send to (inner destination); may be repeated")
	cmd.Flags().StringArrayVar(&f.Local, "local", nil, "address that balancers send to (outer destination; default: all of this host)")
	cmd.Flags().BoolVar(&f.Generic, "generic", false, "attach in generic mode, for drivers without native XDP")
	return cmd
}

func newLBDecapDelCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "del IFACE...",
		Short:             "have no tunnels end on interfaces any more",
		Long:              "Have no tunnels end on interfaces any more: on all that are named, or none.",
		Example:           "  culvert lb decap del eth0",
		Args:              usageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: completeArgs(decapInterfaces),
		RunE: func(cmd *cobra.Command, args []string) error {
			return decap.Off(args, cmd.OutOrStdout())
		},
	}
}

func newLBDecapShowCmd() *cobra.Command {
	var asJSON, verbose bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "show where tunnels end: options, counters",
		Long: `Show where tunnels end in this network namespace, and what was counted there. With
-v a sentence explains each reason.

With -j, an object {"decap": [...]} whose members are:

  interface, mode, gue_port     mode: native or generic
  unattached                    gone or replaced, if the interface was deleted since
  local, from, vips             as they are in force; [] allows all
  open                          neither from nor vips keeps anybody out
  reasons                       verdict (decap, pass, drop), reason, text (that
                                explains it), packets, bytes`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return decap.List(asJSON, verbose, cmd.OutOrStdout())
		},
	}
	canPrintJSON(cmd, &asJSON)
	verboseFlag(cmd, &verbose)
	return cmd
}

func decapInterfaces(args []string) []string { return unused(decap.Interfaces(), args) }
