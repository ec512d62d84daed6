// SPDX-License-Identifier: Apache-2.0

package lbcmd

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/lb"
	"culvert/internal/node"
	"culvert/internal/show/usage"
)

func newBackendCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backend",
		Short: "add, change and delete backends of VIPs",
		Args:  cli.UsageArgs(cobra.NoArgs),
		RunE:  cli.NeedVerb,
	}
	cmd.AddCommand(newBackendAddCmd(), newBackendSetCmd(), newBackendDelCmd())
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

// spec returns the values of the flags that were given. args are the VIP and the backend.
func (b *backendFlags) spec(cmd *cobra.Command, args []string) (s lb.BackendSpec, err error) {
	fail := func(err error) (lb.BackendSpec, error) {
		return s, usage.Error(fmt.Errorf("VIP %s: backend %s: %w", args[0], args[1], err))
	}
	given := cmd.Flags().Changed
	s.Encap = b.encap
	if given("weight") {
		w, err := lb.ParseWeight(b.weight)
		if err != nil {
			return fail(err)
		}
		s.Weight = &w
	}
	if given("gue-port") {
		s.GUEPort = &b.guePort
	}
	if given("server-id") {
		s.ServerID = &b.serverID
	}
	if err := s.Validate(); err != nil {
		return fail(err)
	}
	return s, nil
}

// onBackend calls do for the VIP and the backend of args.
func onBackend(cmd *cobra.Command, on string, args []string, do func(context.Context, node.LBEditor, lb.Service, netip.Addr) error) error {
	a, err := lb.ParseBackend(args[1])
	if err != nil {
		return usage.Error(err)
	}
	return onVIP(cmd, on, args[0], func(ctx context.Context, b node.LBEditor, k lb.Service) error { return do(ctx, b, k, a) })
}

func newBackendAddCmd() *cobra.Command {
	var (
		on      string
		backend backendFlags
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
			spec, err := backend.spec(cmd, args)
			if err != nil {
				return err
			}
			return onBackend(cmd, on, args, func(ctx context.Context, b node.LBEditor, k lb.Service, a netip.Addr) error {
				return b.AddBackend(ctx, k, a, spec)
			})
		},
	}
	backend.add(cmd)
	cli.OnFlag(cmd, &on, node.LBDataPlanes)
	return cmd
}

func newBackendSetCmd() *cobra.Command {
	var (
		on      string
		backend backendFlags
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
			spec, err := backend.spec(cmd, args)
			if err != nil {
				return err
			}
			if spec == (lb.BackendSpec{}) {
				return usage.Error(fmt.Errorf("VIP %s: backend %s: give a setting to change: see 'culvert lb backend set --help'", args[0], args[1]))
			}
			return onBackend(cmd, on, args, func(ctx context.Context, b node.LBEditor, k lb.Service, a netip.Addr) error {
				return b.SetBackend(ctx, k, a, spec)
			})
		},
	}
	backend.add(cmd)
	cli.OnFlag(cmd, &on, node.LBDataPlanes)
	return cmd
}

func newBackendDelCmd() *cobra.Command {
	var on string
	cmd := &cobra.Command{
		Use:   "del VIP BACKEND",
		Short: "delete a backend of a VIP: its flows go to others",
		Long: `Delete a backend of a VIP. Its flows go to other backends, which reset connections
that they do not know. Drain it first ('culvert lb drain') to let flows end.`,
		Args:              cli.UsageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, lbVIPs, lbBackends),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onBackend(cmd, on, args, func(ctx context.Context, b node.LBEditor, k lb.Service, a netip.Addr) error {
				return b.DeleteBackend(ctx, k, a)
			})
		},
	}
	cli.OnFlag(cmd, &on, node.LBDataPlanes)
	return cmd
}
