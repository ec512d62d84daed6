// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"culvert/internal/node"
)

func newRunCmd() *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "run -c FILE",
		Short: "attach, keep the data plane in step with the system, serve metrics",
		Long: `Run what a configuration file asks for. Ends on SIGTERM or SIGINT without
detaching: the data plane goes on, and the next run takes it over.

The file is TOML:

  mode = "native"                 # or "generic", for drivers without native XDP
  interfaces = ["eth1", "eth2"]   # default: those of the SCION router
  name = "edge"                   # without [scion]; default: culvert
  metrics = "127.0.0.1:9441"      # serves metrics; without [scion]

  [workers]                       # CPUs to spread packets over; default: none
  cpus = "1-3"
  queue = 2048                    # packets that may wait for each, the default

  [scion]
  config = "/etc/scion/br.toml"   # the SCION router's own file

  [route]                         # the IP router
  bypass_netfilter = false        # true: start in spite of netfilter's rules
  mirror = true                   # false: ask the kernel for every packet
  blocks4 = 16384                 # size of the mirror in KiB, beside its first
  blocks6 = 98304                 # level; these are the defaults

  [filter]                        # the packet filter: without this table, what
                                  # runs stays as it is
  [[filter.rule]]                 # in the order in which they are asked
  name = "dns"                    # its counters go by it
  action = "limit"                # drop, pass, count or limit
  expression = "udp port 53"      # of libpcap; default: every packet
  # program = "dns.ddd"           # or a file: expression, or tcpdump -ddd, -dd
  interfaces = ["eth1"]           # default: all
  src = ["@bad", "!@good"]        # sets that source and destination are in or
  dst = "@ours"                   # not in
  rate = "1kpps"                  # of limit; also 500kB/s, 10Mbit/s
  per = "src/24,48"               # default: one rate for the rule
  burst = 200                     # packets, or bytes as "64kB"
  entries = 100000                # addresses to keep in mind at least
  # all = true                    # has to be said to drop every packet

  [[filter.set]]
  name = "bad"
  type = "prefix"                 # or "endpoint": addresses with ports
  file = "bad.txt"                # see 'culvert filter set --help'; or
  # entries = ["192.0.2.0/24"]    # neither: entries are added by hand
  timeout = "12h"                 # of entries without their own

  [[filter.protect]]              # see 'culvert filter protect --help'
  address = "192.0.2.1:80"
  forwarded = false
  # mss = 1440                    # with forwarded
  # wscale = 7

One of [scion], [route] and [filter] must be there. Without [scion] interfaces
must be named. Relative paths start at the file's directory.

Rules of the file stand together. Those made by 'culvert filter add' stay when
the file is read again: in front of the file's or behind them, as they were. A
name is the file's or was made by hand, not both; what is the same in both
becomes the file's.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if config == "" {
				return usageError(errors.New("no configuration: run -c FILE"))
			}
			return node.Run(cmd.Context(), config)
		},
	}
	cmd.Flags().StringVarP(&config, "config", "c", "", "configuration file (required)")
	completeFileFlag(cmd, "config", "toml")
	return cmd
}

func newAttachCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "attach CONFIG IFACE...",
		Short: "attach once and leave: a data plane without a process",
		Long: `Attach what a configuration file (see 'culvert run --help') asks for to the
given interfaces, and leave. The data plane stays. There is no slow path: what
the fast path does not forward itself goes to the kernel. Links count as up, and
hosts of the AS are reached only with IP forwarding on. A key comes from the
router's keys directory if it has one, or by 'culvert key'.

On a data plane that is attached already, swaps the program and takes over
changes of the configuration without losing a packet. Name every interface:
those that are attached and not named are taken off. While a process serves the
router this is refused, also when its interfaces were detached.`,
		Example:           "  culvert attach culvert.toml eth1 eth2",
		Args:              usageArgs(cobra.MinimumNArgs(2)),
		ValidArgsFunction: completeArgs(hostInterfaces, nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			return node.Attach(cmd.Context(), args[0], args[1:], cmd.OutOrStdout())
		},
	}
}

func newDetachCmd() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "detach IFACE... | --all",
		Short: "take the data plane off interfaces of this network namespace",
		Long: `Take the data plane off interfaces of this network namespace. With the last
interface of a router its counters and keys go.

With --all, also remove what is left of routers, of any network namespace, that
are attached to nothing any more and not served by a process.`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeArgs(attachedInterfaces),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case all == (len(args) > 0):
				return usageError(errors.New("name interfaces, or say --all"))
			case all:
				return node.DetachAll(cmd.OutOrStdout())
			default:
				return node.Detach(args, cmd.OutOrStdout())
			}
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every interface, with counters and keys")
	return cmd
}
