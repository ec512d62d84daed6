// SPDX-License-Identifier: Apache-2.0

package lbcmd

import (
	"errors"
	"net/netip"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/lb/lbview"
	"culvert/internal/node"
	"culvert/internal/show/usage"
)

func newFlowsCmd() *cobra.Command {
	var (
		o               lbview.FlowsOptions
		backend, client string
	)
	cmd := &cobra.Command{
		Use:   "flows [VIP]",
		Short: "list the flows in the flow table, or count them",
		Long: `List the flows in the flow table in no particular order, or with --totals how many
each backend of a VIP has. Flows that have timed out are left out. "(gone)" is a
backend that was deleted: the flow's next packet gets another one.

States are new (one packet so far), open, closing (FIN or RST seen) and udp. The
idle time of a flow is exact to about four seconds.

With -j, an object {"flows": [...]} whose members are client, service, backend,
state and idle_seconds. With --totals and -j:

  flows                               all
  counts                              vip, backend, flows`,
		Example: "  culvert lb flows -n 20\n  culvert lb flows 192.0.2.1:80/tcp --backend 10.0.0.11\n" +
			"  culvert lb flows --client 203.0.113.0/24\n  culvert lb flows --totals",
		Args:              cli.UsageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, lbVIPs),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Service, err = optionalService(o.On, args); err != nil {
				return err
			}
			if backend != "" {
				if o.Backend, err = cli.Address(backend); err != nil {
					return err
				}
			}
			if o.Client, err = clientPrefix(client); err != nil {
				return err
			}
			return lbview.Flows(o, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&backend, "backend", "", "only flows of the backend `ADDRESS`")
	cmd.Flags().StringVar(&client, "client", "", "only flows from the address or `PREFIX`")
	cmd.Flags().IntVarP(&o.Limit, "count", "n", 0, "list `N` flows at most, 0 for all")
	cmd.Flags().BoolVar(&o.Count, "totals", false, "count them by VIP and backend")
	cli.CanPrintJSON(cmd, &o.JSON)
	cli.OnFlag(cmd, &o.On, node.LBDataPlanes)
	return cmd
}

// clientPrefix parses an address or a prefix. "" is for any client.
func clientPrefix(s string) (netip.Prefix, error) {
	if s == "" {
		return netip.Prefix{}, nil
	}
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Masked(), nil
	}
	a, err := cli.Address(s)
	if err != nil {
		return netip.Prefix{}, usage.Error(errors.New(s + " is neither an address nor a prefix: write 203.0.113.7 or 203.0.113.0/24"))
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}
