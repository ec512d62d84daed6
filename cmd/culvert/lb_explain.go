// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"culvert/internal/lb"
	"culvert/internal/lb/lbview"
	"culvert/internal/node"
)

func newLBExplainCmd() *cobra.Command {
	var o lbview.ExplainOptions
	cmd := &cobra.Command{
		Use:   "explain VIP:PORT[/PROTOCOL] CLIENT:PORT [tcp|udp]",
		Short: "say which backend a flow gets, and why",
		Long: `Say what becomes of the next packet of a flow from CLIENT:PORT to VIP:PORT: the
VIP that it is to, the entry of the flow table, if there is one, and whether
packets still go by it, the position in the ring and whose it is, the backend
with its weight and health, what is put in front of the packet, the next hop, and
how large a packet may be. It is worked out from what the program reads; no
packet is made, and nothing is counted. The protocol is tcp unless said.

The packet is a plain one: whole, without options. A flow that the flow table
has not is said to go by the ring; whether it is then taken into the table
depends on how many others come in that moment. What a VIP without backends does
with it may depend on the interface that it comes in by, without a tag: -i says
which.

With -j, an object with the members:

  router, client, service             the flow
  verdict, reason                     as in 'culvert status'; none when it is to
                                      no VIP, or depends on the interface
  by                                  table or ring: who names the backend
  text                                the answer in a line
  vip, hash, on_failure               the VIP
  quic_server_id                      its bytes of server ID
  ring                                position, size, backend
  flow                                entry of the flow table: backend, state,
                                      idle_seconds, counts, why (why it does not)
  backend                             as in 'culvert lb show'
  outer                               source, destination, source_port,
                                      destination_port, bytes
  fits                                largest packet of the client, bytes`,
		Example: `  culvert lb explain 192.0.2.1:80 203.0.113.7:51234
  culvert lb explain [2001:db8::1]:443/udp [2001:db8:9::7]:51234
  culvert lb explain 192.0.2.1:443 203.0.113.7:51234 udp -j`,
		Args:              usageArgs(cobra.RangeArgs(2, 3)),
		ValidArgsFunction: completeArgs(nothing, lbVIPs, nothing, fixed("tcp", "udp")),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Service, err = explainedService(args[0], args[2:]); err != nil {
				return usageError(err)
			}
			if o.Client, err = netip.ParseAddrPort(args[1]); err != nil || o.Client.Addr().Zone() != "" {
				return usageError(errors.New(args[1] + " is no client: write address and port, as 203.0.113.7:51234 or [2001:db8::7]:51234"))
			}
			return lbview.Explain(o, cmd.OutOrStdout())
		},
	}
	canPrintJSON(cmd, &o.JSON)
	incomingFlag(cmd, &o.Interface)
	onFlag(cmd, &o.On, node.Balancers)
	return cmd
}

// explainedService reads a VIP whose protocol may stand behind it, or as a word of its own.
func explainedService(vip string, protocol []string) (lb.Service, error) {
	_, inside, said := strings.Cut(vip, "/")
	switch {
	case !said && len(protocol) == 0:
		vip += "/tcp"
	case !said:
		vip += "/" + protocol[0]
	case len(protocol) > 0 && protocol[0] != inside:
		return lb.Service{}, errors.New(vip + " and " + protocol[0] + " contradict each other: say one protocol")
	}
	return lb.ParseService(vip)
}
