// SPDX-License-Identifier: Apache-2.0

package lbcmd

import (
	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/lb"
	"culvert/internal/lb/lbview"
	"culvert/internal/node"
	"culvert/internal/show/usage"
)

func newShowCmd() *cobra.Command {
	var o lbview.ShowOptions
	cmd := &cobra.Command{
		Use:   "show [VIP]",
		Short: "show VIPs and their backends: health, shares, counters",
		Long: `Show the VIPs, or one, and below each its backends: weight, share of the ring,
health, packets and bytes, flows that got an entry in the flow table, and next hop.

A VIP is active, drained (not announced), down (its backends fail or cannot be
reached), or has no backend. "announced to" is the number of neighbors of [lb.bgp]
to which its address is announced, of those whose session has the address's family.
"not announced" is for a VIP that is drained, down, has no backend, or is not served. BGP does not tell whether a
neighbor uses a route. Bytes are those of IP packets without the outer headers.
Events are counted beside the packets of backends; docs/lb.md has a table of them.

With -j, an object with the members:

  router, netns, interfaces           the data plane
  served                              whether a process keeps it in step
  ring_size, seed_id                  positions of each ring, ID of the seed
  flow_table                          flows (made for), used (about), memory_bytes
  bgp                                 sessions: neighbor, asn, state, since,
                                      announced (prefixes), families, error
  vips                                by address:
      vip, state                        active, drained, down, no backend
      hash, on_failure, encapsulation   as configured
      quic_server_id, check, from       from: file or hand
      announce, announced_to            whether it is to be announced; neighbors
                                        to which its address is announced
      packets, bytes, flows             sums over backends
      open_flows                        in the flow table now, with --flows
      events                            event: packets or flows
      backends                          in their order:
          backend, encapsulation, gue_port, weight, drained, server_id, from
          share                           of the ring, percent
          health                          state (up, down, unknown), since,
                                          checks, failures, why
          source                          of outer headers
          next_hop                        ifindex, interface, mac, vlan, mtu
          problem, obstacle               why packets cannot be sent, what causes it
          packets, bytes, flows, open_flows`,
		Example: "  culvert lb show\n  culvert lb show 192.0.2.1:80/tcp --flows\n" +
			"  culvert lb show -j | jq '.vips[].backends[] | {backend, packets}'",
		Args:              cli.UsageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, lbVIPs),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Service, err = optionalService(o.On, args); err != nil {
				return err
			}
			return lbview.Show(o, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&o.Flows, "flows", false, "count the flows of each backend in the flow table: a second for 10 million")
	cli.CanPrintJSON(cmd, &o.JSON)
	cli.OnFlag(cmd, &o.On, node.LBDataPlanes)
	return cmd
}

// optionalService parses a VIP that may be left out. It returns nil then.
func optionalService(on string, args []string) (*lb.Service, error) {
	if len(args) == 0 {
		return nil, nil
	}
	s, err := lbview.Named(on, args[0])
	if err != nil {
		return nil, usage.Error(err)
	}
	return &s, nil
}
