// SPDX-License-Identifier: Apache-2.0

package lbcmd

import (
	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/edit"
	"culvert/internal/lb"
	"culvert/internal/node"
)

func newBackendCmd(changing cli.Changing) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backend",
		Short: "add, change and delete backends of VIPs",
		Args:  cli.UsageArgs(cobra.NoArgs),
		RunE:  cli.NeedVerb,
	}
	cmd.AddCommand(newBackendAddCmd(changing), newBackendSetCmd(changing), newBackendDelCmd(changing))
	return cmd
}

// backendFlags are the flags that describe a backend.
type backendFlags struct {
	weight   int64
	encap    string
	guePort  uint16
	serverID string
}

func (b *backendFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Int64Var(&b.weight, "weight", 1, "share `N` of new flows, 0 to 65535; 0 for none")
	f.StringVar(&b.encap, "encap", "", "send packets to it by `ENCAP`: ipip, gue or l2 (default: that of the VIP)")
	f.Uint16Var(&b.guePort, "gue-port", lb.GUEPort, "UDP `PORT` of GUE")
	f.StringVar(&b.serverID, "server-id", "", "hexadecimal server `ID` in QUIC connection IDs")
	cli.CompleteFlag(cmd, "encap", cli.Fixed(lb.EncapIPIP, lb.EncapGUE, lb.EncapL2))
}

// settings returns the values of the flags that were given.
func (b *backendFlags) settings(cmd *cobra.Command) (s edit.BackendSettings) {
	given := cmd.Flags().Changed
	s.Encapsulation = b.encap
	if given("weight") {
		s.Weight = &b.weight
	}
	if given("gue-port") {
		s.GUEPort = &b.guePort
	}
	if given("server-id") {
		s.ServerID = &b.serverID
	}
	return s
}

func backendName(args []string) edit.BackendName {
	return edit.BackendName{VIP: args[0], Backend: args[1]}
}

func newBackendAddCmd(changing cli.Changing) *cobra.Command {
	var (
		backend backendFlags
		change  cli.Runner
	)
	cmd := &cobra.Command{
		Use:   "add VIP BACKEND",
		Short: "give a VIP another backend",
		Long: `Give a VIP another backend. It gets new flows as soon as its next hop is resolved;
flows of others keep their backends.

With ipip and gue the backend may be of either family, and anywhere: it decapsulates
the packets ('culvert lb decap', or a tunnel device) and has the VIP on its loopback
interface. With l2 it is of the VIP's family and on the same link.`,
		Example:           "  culvert lb backend add 192.0.2.1:80/tcp 10.0.0.11 --weight 2\n  culvert lb backend add 192.0.2.1:80/tcp fd00::12 --encap gue",
		Args:              cli.UsageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, lbVIPs),
		RunE: func(cmd *cobra.Command, args []string) error {
			return change.Run(cmd, &edit.BackendAdd{BackendName: backendName(args), BackendSettings: backend.settings(cmd)})
		},
	}
	backend.add(cmd)
	change = changing(cmd, node.LBDataPlanes)
	return cmd
}

func newBackendSetCmd(changing cli.Changing) *cobra.Command {
	var (
		backend backendFlags
		change  cli.Runner
	)
	cmd := &cobra.Command{
		Use:   "set VIP BACKEND",
		Short: "change a backend",
		Long: `Change the settings that are given; the others stay. Settings of the configuration
file are restored when the file is read again.`,
		Example:           "  culvert lb backend set 192.0.2.1:80/tcp 10.0.0.11 --weight 3",
		Args:              cli.UsageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, lbVIPs, lbBackends),
		RunE: func(cmd *cobra.Command, args []string) error {
			return change.Run(cmd, &edit.BackendSet{BackendName: backendName(args), BackendSettings: backend.settings(cmd)})
		},
	}
	backend.add(cmd)
	change = changing(cmd, node.LBDataPlanes)
	return cmd
}

func newBackendDelCmd(changing cli.Changing) *cobra.Command {
	var change cli.Runner
	cmd := &cobra.Command{
		Use:   "del VIP BACKEND",
		Short: "delete a backend of a VIP: its flows go to others",
		Long: `Delete a backend of a VIP. Its flows go to other backends, which reset connections
that they do not know. Drain it first ('culvert lb drain') to let flows end.`,
		Args:              cli.UsageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, lbVIPs, lbBackends),
		RunE: func(cmd *cobra.Command, args []string) error {
			return change.Run(cmd, &edit.BackendDel{BackendName: backendName(args)})
		},
	}
	change = changing(cmd, node.LBDataPlanes)
	return cmd
}
