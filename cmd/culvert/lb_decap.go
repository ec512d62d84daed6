// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"culvert/internal/datapath"
	"culvert/internal/decap"
)

func newLBDecapCmd() *cobra.Command {
	var (
		f           decap.Flags
		off, asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "decap [IFACE...]",
		Short: "take IPIP and GUE off packets that come to this host, on a backend",
		Long: `Take the outer headers off packets in tunnels that end on this host, in the
driver: the kernel gets the inner packet as if it had come by that interface. No
tunnel device is needed. Without an interface, show where tunnels end in this
network namespace, and what was counted there.

Taken off are IPIP (protocols 4 and 41) and GUE (variants 0 and 1), over IPv4 and
IPv6, with IPv4 and IPv6 in it. Everything else goes to the kernel unchanged,
but for packets that RFC 6040 has the end of a tunnel drop. Attaching again
with other options swaps them in place; counters stay. No process is needed.

Only packets to addresses of this host, as they were when it was attached, are
taken off. Who can send such packets can send anything into this host: say with
--from where the balancers are, and with --vip what they may send to. One of them
has to be given; --from any takes what anybody sends, and is warned of.

With -j, an object {"decap": [...]} whose members are:

  interface, mode, gue_port     mode: native or generic
  unattached                    gone or replaced, if the interface was deleted since
  local, from, vips             as they are in force; [] allows all
  open                          neither from nor vips keeps anybody out
  reasons                       verdict (decap, pass, drop), reason, packets, bytes`,
		Example: "  culvert lb decap eth0 --from 10.200.0.0/16 --vip 192.0.2.1\n  culvert lb decap\n  culvert lb decap --off eth0",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && (off || optionsGiven(cmd)):
				return usageError(errors.New("name interfaces, as in culvert lb decap eth0"))
			case len(args) == 0:
				return decap.List(asJSON, cmd.OutOrStdout())
			case asJSON:
				return usageError(errors.New("-j goes with the list: culvert lb decap -j"))
			case off && optionsGiven(cmd):
				return usageError(errors.New("--off takes no other options"))
			case off:
				return decap.Off(args, cmd.OutOrStdout())
			default:
				return decapError(decap.Attach(args, f, cmd.OutOrStdout(), cmd.ErrOrStderr()))
			}
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if off {
				return completeArgs(decapInterfaces)(cmd, args, typed)
			}
			return completeArgs(hostInterfaces)(cmd, args, typed)
		},
	}
	cmd.Flags().IntVar(&f.GUEPort, "gue-port", datapath.DecapGUEPort, "UDP port of GUE")
	cmd.Flags().StringArrayVar(&f.From, "from", nil, "prefix that balancers send from (outer source), or any; may be repeated")
	cmd.Flags().StringArrayVar(&f.VIP, "vip", nil, "address that clients send to (inner destination); may be repeated")
	cmd.Flags().StringArrayVar(&f.Local, "local", nil, "address that balancers send to (outer destination; default: all of this host)")
	cmd.Flags().BoolVar(&f.Generic, "generic", false, "attach in generic mode, for drivers without native XDP")
	cmd.Flags().BoolVar(&off, "off", false, "take it off the interfaces")
	cmd.Flags().BoolVarP(&asJSON, "json", "j", false, "print JSON")
	return cmd
}

// optionsGiven tells whether there is an option for attaching.
func optionsGiven(cmd *cobra.Command) bool {
	for _, name := range []string{"gue-port", "from", "vip", "local", "generic"} {
		if cmd.Flags().Changed(name) {
			return true
		}
	}
	return false
}

func decapInterfaces(args []string) []string { return unused(decap.Interfaces(), args) }

// decapError gives a wrong command line the status of wrong usage.
func decapError(err error) error {
	var usage *decap.UsageError
	if errors.As(err, &usage) {
		return usageError(err)
	}
	return err
}
