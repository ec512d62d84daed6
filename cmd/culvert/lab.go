// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/lab"
	"culvert/internal/show/usage"
)

func newLabCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "build small networks to try culvert in",
		Long: `Build small networks out of network namespaces and veth pairs, run programs in
them, and remove them completely. Nothing outside these namespaces is touched.
Several labs can be up at once, each under a name of its own.

Needs root.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: cli.NeedVerb,
	}
	cmd.AddCommand(newLabUpCmd(), newLabDownCmd(), newLabListCmd(), newLabExecCmd(), newLabBuildCmd(), newLabWebCmd())
	return cmd
}

func newLabUpCmd() *cobra.Command {
	var o lab.Options
	var culvert, routes string
	cmd := &cobra.Command{
		Use:   "up TOPOLOGY",
		Short: "set up a lab",
		Long:  "Set up a lab and leave it running. The topologies are:\n\n" + labTopologies() + labUpHelp,
		Example: `  culvert lab up veth --static-neighbors
  culvert lab up scion3
  culvert lab exec scion3 as1 scion ping 1-ff00:0:3,127.0.0.1 -c 5
  culvert lab up scion3 --name second --culvert none --switch
  culvert lab up bgp --routes 10000
  culvert lab exec bgp left traceroute -n 1.1.1.1
  culvert lab up filter
  culvert lab exec filter host culvert filter add drop icmp
  culvert lab up lb
  culvert lab exec lb client curl http://203.0.113.80/
  culvert lab up all
  culvert lab exec all rut culvert reload --dry-run
  culvert lab up fleet`,
		Args:              cli.UsageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, cli.Fixed(slices.Sorted(maps.Keys(lab.Topologies()))...)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.Out = cmd.OutOrStdout()
			if cmd.Flags().Changed("culvert") {
				if o.Routers, err = lab.ParseCulvert(args[0], culvert); err != nil {
					return labError(err)
				}
			}
			if o.Routes, err = lab.ParseRoutes(routes); err != nil {
				return labError(err)
			}
			l, err := lab.Up(cmd.Context(), args[0], o)
			if err != nil {
				return labError(err)
			}
			return l.WriteSummary(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Name, "name", "", "call the lab `NAME` (default the topology's name)")
	f.IntVar(&o.MTU, "mtu", 1500, "the veths have an MTU of `BYTES`")
	f.BoolVar(&o.IPv6, "ipv6", false, "carry SCION over IPv6")
	f.BoolVar(&o.StaticNeighbors, "static-neighbors", false, "veth, filter: add permanent neighbor entries")
	f.BoolVar(&o.Forward, "forward", false, "veth: turn IP forwarding on in rut")
	f.StringVar(&culvert, "culvert", "", "`WHO` runs culvert: in scion3 all, none, or names of ASes with commas (default as2); in bgp rut or none (default rut)")
	f.BoolVar(&o.SegmentSwitch, "switch", false, "scion3, all: make AS 2 the parent of the others, so that segments meet there")
	cli.TimeFlag(cmd, &o.BFD, "bfd", 0, "scion3, all: interval `TIME` of the BFD sessions (default 200ms)")
	f.StringVar(&routes, "routes", "full", "bgp: announce `N` prefixes: full, a number for IPv4, or two with a comma, for IPv4 and IPv6")
	f.BoolVar(&o.Plain, "plain", false, "bgp: add the routes to the kernel with ip, without BGP")
	cli.TimeFlag(cmd, &o.Timeout, "timeout", 0, "wait `TIME` at most for paths (scion3), or for each step (default 5m)")
	return cmd
}

const labUpHelp = `
In veth you start the router under test yourself, for example with
'culvert lab exec veth rut culvert scion run -c FILE'. The command writes its
configuration and prints the path. In scion3 everything runs when the command
returns; the reference programs are built first if they are missing. In bgp the
command returns when the table is in the kernel of rut and left can ping right; it
needs the Debian packages bird2, stayrtr and iputils-ping. In filter culvert runs
in host with an empty filter when the command returns, and serves its metrics on
port 9441: a service to ping, to get and to protect. In lb the command returns when
all four web servers have answered the client in both families; it needs the Debian
packages bird2 and curl. In all, rut is a SCION router, IP router, packet filter and
load balancer in one process with one file; the command returns when traffic flows
through each of them, and needs what scion3 and lb need. In fleet three balancers and
two filters have their configuration from an etcd of three members; the command
returns when they run it and all web servers have answered, and needs what lb needs.

If the command fails or is interrupted, it removes what it has made. After a failure
the logs of the programs stay, until 'culvert lab down NAME' or the next 'up' of that
name.`

// labTopologies lists the topologies, a line each.
func labTopologies() string {
	var b strings.Builder
	topologies := lab.Topologies()
	for _, name := range slices.Sorted(maps.Keys(topologies)) {
		fmt.Fprintf(&b, "  %-8s %s\n", name, topologies[name])
	}
	return b.String()
}

func newLabDownCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "down NAME...",
		Short: "take labs down",
		Long: `Take labs down: end every process in their namespaces, and remove the namespaces,
their files and culvert's pins for them. It also removes what a killed 'up' has
left, and the logs of one that failed.`,
		Example:           "  culvert lab down scion3",
		Args:              cli.UsageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(cli.Labs),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, name := range args {
				if err := lab.Down(name); err != nil {
					return labError(err)
				}
			}
			return nil
		},
	}
}

func newLabListCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list the labs that are up",
		Long:  "List the labs that are up, with their namespaces and processes.",
		Args:  cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return lab.WriteList(cmd.OutOrStdout(), asJSON)
		},
	}
	cli.CanPrintJSON(cmd, &asJSON)
	return cmd
}

func newLabExecCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec NAME NAMESPACE COMMAND [ARG...]",
		Short: "run a command in a lab",
		Long: `Run a command in a namespace of a lab: as1, as1h, as2, as3 or as3h in scion3,
rut, a or b in veth, rut, peer, rpki, left or right in bgp, host or client in
filter, client, router, lb1, lb2 and b1 to b4 in lb, rut, client, peer, as1, as1h,
as3, as3h, b1 or b2 in all, client, router, ops, f1, f2, lb1 to lb3, b1 to b4 and e1
to e3 in fleet. The programs router, control, daemon, dispatcher, scion,
scion-pki and culvert are found without a path, and scion knows the daemon of its AS.
/sys shows the devices of the namespace. Unlike with 'ip netns exec' all other mounts
stay, so culvert's pins are visible. The exit status is that of the command.`,
		Example: `  culvert lab exec scion3 as1 scion showpaths 1-ff00:0:3
  culvert lab exec veth rut ip -br address`,
		Args:              cli.UsageArgs(labExecArgs),
		ValidArgsFunction: cli.CompleteArgs(nil, cli.Labs, labNamespaces),
		RunE: func(_ *cobra.Command, args []string) error {
			l, err := lab.Open(args[0])
			if err != nil {
				return labError(err)
			}
			return l.Exec(args[1], args[2:]...)
		},
	}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// labExecArgs wants three arguments. To who names a lab alone it says what the lab has.
func labExecArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		if names := labNamespaces(args); len(names) > 0 {
			return fmt.Errorf("name a namespace of lab %s and a command: it has %s", args[0], strings.Join(names, ", "))
		}
	}
	return cobra.MinimumNArgs(3)(cmd, args)
}

func newLabBuildCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "build",
		Short: "build the reference programs that scion3 runs",
		Long: `Build the reference programs that scion3 runs beside culvert: router, control,
daemon, dispatcher, scion and scion-pki, as pinned in the module peers/ of
culvert's source. They go into the directory peers beside the culvert binary,
with the table of prefixes that bgp announces. Those that are up to date are kept.
Needs Go, and gcc for control and daemon.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return lab.BuildPeers(cmd.Context(), cmd.OutOrStdout())
		},
	}
}

// labError marks errors of options and names as wrong usage.
func labError(err error) error {
	if errors.Is(err, lab.ErrOptions) {
		return usage.Error(err)
	}
	return err
}

// newLabWebCmd is "culvert lab web".
func newLabWebCmd() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "web NAME",
		Short: "serve web pages: a backend of topology lb",
		Long: `Serve web pages until Ctrl-C, as the backends of topology lb do: / has NAME,
/bytes/N has N bytes, and a POST to / is answered with its length and SHA-256.
/health has the status that a PUT to it has set, by default 200. With it you can
let the checks of a load balancer fail.`,
		Example: `  culvert lab exec lb b1 curl http://127.0.0.1/health -T - <<< 503
  culvert lab web --listen :8080 here`,
		Args:              cli.UsageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing),
		RunE: func(cmd *cobra.Command, args []string) error {
			return labError(lab.ServeWeb(cmd.Context(), listen, args[0]))
		},
	}
	cmd.Flags().StringVar(&listen, "listen", ":80", "listen on `ADDRESS:PORT`")
	return cmd
}

func labNamespaces(args []string) []string {
	l, err := lab.Open(args[0])
	if err != nil {
		return nil
	}
	var names []string
	for _, n := range l.Namespaces {
		names = append(names, n.Name)
	}
	return names
}
