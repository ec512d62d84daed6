// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"culvert/internal/doctor"
	"culvert/internal/node"
)

func newDoctorCmd() *cobra.Command {
	var (
		config                 string
		interfaces, neighbours []string
		asJSON                 bool
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "say what on this host stands in the way, and the command that mends it",
		Long: `doctor looks at kernel, bpffs, privileges, clock, interfaces and neighbours of the network
namespace it runs in. It changes nothing. It exits with 1 when something fails that culvert cannot
do without.`,
		Example: `  culvert doctor
  culvert doctor -c /etc/scion/br1-ff00_0_1-1.toml
  culvert doctor -i eth1,eth2 -n 192.0.2.2
  ip netns exec router culvert doctor -j`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := doctor.Options{Interfaces: interfaces}
			for _, s := range neighbours {
				addr, err := netip.ParseAddr(s)
				if err != nil {
					return usageError(fmt.Errorf("--neighbour: %w", err))
				}
				o.Remote = append(o.Remote, addr)
			}
			if config != "" {
				if err := node.DoctorOptions(config, &o); err != nil {
					return err
				}
			}
			node.DoctorRunning(&o)
			report, err := doctor.Run(o)
			if err != nil {
				return err
			}
			write := report.WriteTable
			if asJSON {
				write = report.WriteJSON
			}
			if err := write(cmd.OutOrStdout()); err != nil {
				return err
			}
			return report.Err()
		},
	}
	f := cmd.Flags()
	f.StringVarP(&config, "config", "c", "", "look at the interfaces, sockets and neighbours of this file: a router's TOML file or culvert's own")
	f.StringSliceVarP(&interfaces, "interface", "i", nil, "look at these interfaces only (default: all that are up)")
	f.StringSliceVarP(&neighbours, "neighbour", "n", nil, "look at the way to these addresses, too")
	completeFileFlag(cmd, "config", "toml")
	completeFlag(cmd, "interface", hostInterfaces)
	f.BoolVarP(&asJSON, "json", "j", false, "print JSON")
	return cmd
}
