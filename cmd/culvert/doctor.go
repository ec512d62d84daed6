// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/doctor"
	"culvert/internal/node"
	"culvert/internal/show/usage"
)

func newDoctorCmd() *cobra.Command {
	var (
		config                string
		interfaces, neighbors []string
		asJSON                bool
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "examine this host: what stands in the way, and the command that mends it",
		Long: `Examine kernel, bpffs, privileges, clock, interfaces and neighbors of the network
namespace, and what a configuration needs: without -c and -i that of
` + cli.DefaultConfig + `, if there is such a file. doctor changes nothing. Its exit status is
1 if a check fails.`,
		Example: `  culvert doctor
  culvert doctor -c /etc/scion/br1-ff00_0_1-1.toml
  culvert doctor -i eth1,eth2 --neighbor 192.0.2.2
  ip netns exec router culvert doctor -j`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := doctor.Options{Interfaces: interfaces}
			for _, s := range neighbors {
				addr, err := netip.ParseAddr(s)
				if err != nil {
					return usage.Error(fmt.Errorf("--neighbor %q: give an IPv4 or IPv6 address, such as 192.0.2.2", s))
				}
				o.Remote = append(o.Remote, addr)
			}
			if config == "" && len(interfaces) == 0 && cli.IsFile(cli.DefaultConfig) {
				config = cli.DefaultConfig
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
	cli.ConfigFlag(cmd, &config, "", "examine what the configuration `FILE` needs: culvert's, or the SCION router's own")
	f := cmd.Flags()
	f.StringSliceVarP(&interfaces, "interface", "i", nil, "examine only the interfaces `IFACE,...` (default: all that are up)")
	f.StringSliceVar(&neighbors, "neighbor", nil, "also examine the routes to the addresses `ADDRESS,...`")
	cli.CompleteFlag(cmd, "interface", cli.HostInterfaces)
	cli.CanPrintJSON(cmd, &asJSON)
	return cmd
}
