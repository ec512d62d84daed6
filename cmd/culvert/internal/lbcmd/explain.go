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

func newExplainCmd() *cobra.Command {
	var o lbview.ExplainOptions
	cmd := &cobra.Command{
		Use:   "explain VIP:PORT/PROTOCOL CLIENT:PORT",
		Short: "say which backend a flow gets, and why",
		Long: `Explain what happens to the next packet of a flow from CLIENT:PORT to VIP:PORT:
its VIP, the entry of the flow table, if there is one, and whether packets still
follow it, the position in the ring and the backend there, the backend with its
weight and health, the outer headers, the next hop, and how large a packet may be.
The answer is worked out from the maps that the program reads; no packet is made,
and nothing is counted. Rules of the filter in front are not asked, but named.

The packet is not fragmented and has no options. A flow that is not in the flow
table is assigned by the ring; whether it then gets an entry depends on how many
other new flows there are. What happens to packets of a VIP without backends, and
to another port of a VIP's address, may depend on the interface by which they come
in untagged: -i names it.

With -j, an object with the members:

  router, client, service             the flow
  verdict, reason                     as in 'culvert status'; none if the load
                                      balancer leaves the packet alone, or if it
                                      depends on the interface
  by                                  table or ring: where the backend is from
  text                                the answer in a line
  vip, hash, on_failure               the VIP
  quic_server_id                      its bytes of server ID
  ring                                position, size, backend
  flow                                entry of the flow table: backend, state,
                                      idle_seconds, counts, why (why it does not)
  backend                             as in 'culvert lb show'
  outer                               source, destination, source_port,
                                      destination_port, bytes
  fits                                largest packet of the client, bytes
  not_asked                           a line for the filter in front, if it has
                                      rules or protected services`,
		Example: `  culvert lb explain 192.0.2.1:80/tcp 203.0.113.7:51234
  culvert lb explain [2001:db8::1]:443/udp [2001:db8:9::7]:51234
  culvert lb explain 192.0.2.1:443/udp 203.0.113.7:51234 -j`,
		Args:              cli.UsageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, lbVIPs),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Service, err = lbview.Named(o.On, args[0]); err != nil {
				return usage.Error(err)
			}
			if o.Client, err = netip.ParseAddrPort(args[1]); err != nil || o.Client.Addr().Zone() != "" {
				return usage.Error(errors.New(args[1] + " is no client: write address and port, such as 203.0.113.7:51234 or [2001:db8::7]:51234"))
			}
			o.NotAsked = node.BeforeLB
			return lbview.Explain(o, cmd.OutOrStdout())
		},
	}
	cli.CanPrintJSON(cmd, &o.JSON)
	cli.IncomingFlag(cmd, &o.Interface)
	cli.OnFlag(cmd, &o.On, node.LBDataPlanes)
	return cmd
}
