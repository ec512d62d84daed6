// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/node"
	"culvert/internal/show/status"
)

func newStatusCmd() *cobra.Command {
	var o status.Options
	cmd := &cobra.Command{
		Use:   "status",
		Short: "show what is attached, and what it has counted",
		Long: `Show every data plane on this machine, in all network namespaces, or one: the IP
router, the filter, the load balancer, the interfaces with verdicts and reasons of
their packets, the links of the SCION router with state, next hop and traffic of the
fast path, and the keys. Needs root.

The packets of an interface's reasons, and those lost in the queue of a worker, add
up to the packets that it has received. "limited" counts packets to the slow path
that were over its limit. Other "lost" packets were forwarded and did not leave the
host. "fast in" and "out" of a link count what the fast path itself has received and
sent, without the slow path's packets. With -v a sentence explains each reason;
culvert-reasons(7) has all of them.

With -j, an object {"routers": [...]} whose members are:

  router, netns, netns_name, here     ID, namespace's inode and name, whether it is
                                      the caller's
  mode, served, pid, loaded_at, pins  how it is attached, whether a process serves
                                      it, which one, since when, and its pins
  workers                             cpus, queue (packets each), if there are any;
      enqueued                          cpu, packets: what each has given to workers
  config                              of the process: file, read_at, and
      differs                           files that have changed since
      reload                            the last one: at, ok, error
      until                             when it goes back (culvert reload --confirm)
  problem                             why the rest could not be read, if so
  interfaces                          interface, attached, packets, bytes,
      peer                              what is wrong at a veth's other end:
                                        check, finding, command
      queues                            receive, most, rss_percent (of each queue),
                                        interrupts: irq, name, cpus
      stays                             set if workers get none of its packets
      cpus                              cpu, packets, bytes: on which each has given
                                        a verdict
      reasons                           reason, verdict, limited, text (that
                                        explains it), packets, bytes
      losses                            packets by kind of loss
  links                               link, scope, local, remote, up, dropped,
      next_hop                          ifindex, interface, mac, mtu
      in, out                           packets, bytes
  keys                                index, id
  route                               the IP router, if it is on (see also
                                      'culvert route show'):
      ipv4, ipv6                        by: mirror, stale, none or kernel; why,
                                        stale_seconds
      memory_bytes                      of the mirror
      netfilter, netfilter_problem      rules that forwarded packets go past
  filter                              rules, sets, services (how many), and
                                      dropped_packets, dropped_bytes (see also
                                      'culvert filter list')
  lb                                  vips, backends, down, drained (how many),
                                      flows, flows_used, memory_bytes (see also
                                      'culvert lb show')

and "decap": the interfaces of this network namespace at which tunnels of load
balancers end, with interface, unattached (gone or replaced, if it was deleted
since), mode, packets, bytes and reasons; and "slow_path_only": the processes that
run a SCION router without a data plane, with router, netns, netns_name, here and
pid.`,
		Example: `  culvert status
  culvert status -v --on br1-ff00_0_1-2
  culvert status -j | jq '.routers[].interfaces[] | {interface, packets}'`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return status.Show(cmd.OutOrStdout(), o)
		},
	}
	cli.OnlyFlag(cmd, &o.Router, node.Routers)
	cli.CanPrintJSON(cmd, &o.JSON)
	cli.VerboseFlag(cmd, &o.Verbose)
	return cmd
}
