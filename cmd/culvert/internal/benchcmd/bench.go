// SPDX-License-Identifier: Apache-2.0

// Package benchcmd has the constructors of 'culvert bench'.
package benchcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/bench"
	"culvert/internal/bench/load"
	"culvert/internal/bench/scenario"
	"culvert/internal/bench/scenario/filterrun"
	"culvert/internal/bench/scenario/lbrun"
	"culvert/internal/bench/scenario/routerun"
	"culvert/internal/show/usage"
)

// New returns 'culvert bench' with its verbs.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "measure culvert beside its peers",
		Args:  cli.UsageArgs(cobra.NoArgs),
		RunE:  cli.NeedVerb,
	}
	cmd.AddCommand(newRunCmd(), newInsnCmd(), newPlotCmd(), newCompareCmd(), newSinkCmd())
	return cmd
}

// newRunCmd is "culvert bench run".
func newRunCmd() *cobra.Command {
	var (
		o      scenario.Options
		asJSON bool
		prefix string
	)
	rounds, each := bench.Defaults()
	cmd := &cobra.Command{
		Use:   "run SCENARIO",
		Short: "run a scenario: " + strings.Join(bench.Scenarios(), ", "),
		Long: `Run a scenario. All but scion3 make namespaces of their own and remove them
afterwards. The scenarios are:

  veth    packets a second from a generator in the kernel, through a device
          under test, to a sink: with frames of 138 bytes on one CPU, of other
          lengths (rows like bridge@512), and with the generator on a CPU of its
          own (bridge@2cpu). --size and --cpus choose among these groups. The
          first group has all rounds, the others half as many
  workers packets a second with 0, 1, 2 ... worker CPUs, how busy each CPU is,
          and whether the order within flows is kept
  cost    nanoseconds that a program takes for a packet, without those that an
          empty program takes
  scion3  packets a second from AS 1 through the router of AS 2 to AS 3, in a
          lab that is up; the router is culvert, the reference router, or culvert
          in front of it, by turns; at the end the lab has its first router again
  ndr     the highest rate without loss (no drop rate), for several frame
          lengths; generator on one CPU, device and sink on another
  latency percentiles of the time from generator to sink at 10, 50 and 90 % of
          each row's no drop rate, on two CPUs
  route   packets a second that are routed by IP: by Linux, by a bare redirect,
          by an XDP program that asks the kernel for each, and by culvert; with
          few routes and with a full table of real prefixes, to one and to many
          destinations, and while routes change. --groups chooses among these
  filter  packets of a flood that packet filters drop a second, and the CPU time
          for it: iptables, nftables, ipset, xdp-filter and culvert; with 1 to
          1000 rules, with sets of up to a million prefixes, and how many
          transactions a TCP client still makes. --groups chooses among these
  lb      packets a second that are spread over 100 backends: by culvert, nftables
          and iptables; of known flows, of a million, of a flood of SYNs, on one
          and on all CPUs; and real connections, there beside haproxy. --groups
          chooses among these
  fleet   how fast changes reach 1000 nodes, and what they take from an etcd of three
          members on this machine: the nodes are real ones but for their data planes.
          --nodes says how many there are
  generator  packets a second from the bench's own generator and from tcpreplay
          over a veth pair into a sink, all on one CPU

The groups are:

` + benchGroups() + `
Unless --rounds or --seconds says otherwise, rows have these rounds of these seconds:

` + wrapped("rounds", strings.SplitAfter(rounds, ",")) + wrapped("seconds", strings.SplitAfter(each, ",")) + `
A row whose packets are not all accounted for is marked invalid, and so is one
that this machine cannot measure, because the reference router has not been
built for example. The exit status is 1 then. It is an error to ask for such a
row by name.`,
		Example: "  culvert bench run veth --rows direct,redirect --rounds 3\n  culvert bench run cost -j\n" +
			"  culvert bench run veth --size 512,1400 --cpus 1\n" +
			"  culvert bench run veth -o /tmp/veth   # the table, /tmp/veth.json, veth.md, veth-rates.svg\n" +
			"  culvert bench run ndr --rows redirect,culvert-cold --size 138,imix\n" +
			"  culvert bench run route --groups 4-few,4-full-65536 --rows linux,mirror\n" +
			"  culvert bench run filter --groups drop,tcp\n" +
			"  culvert bench run fleet --nodes 100,1000 --rows urgent\n" +
			"  culvert bench run latency --rows direct,redirect --rounds 1\n" +
			"  culvert lab up scion3 && culvert bench run scion3",
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, cli.Fixed(bench.Scenarios()...)),
		Args:              cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			changed := cmd.Flags().Changed
			if changed("rounds") && o.Rounds <= 0 || changed("seconds") && (o.Round <= 0 || o.Round >= 1e6*time.Second) {
				return usage.Error(errors.New("--rounds and --seconds must be numbers above 0: leave them out for the default"))
			}
			if err := checkReportPrefix(prefix); err != nil {
				return err
			}
			o.Progress = cmd.ErrOrStderr()
			report, err := bench.Run(cmd.Context(), args[0], o)
			switch {
			case errors.Is(err, load.ErrUnknown), errors.Is(err, scenario.ErrOption):
				return usage.Error(err)
			case errors.Is(err, context.Canceled):
				return fmt.Errorf("bench run %s: interrupted, nothing has been written", args[0])
			case err != nil:
				return fmt.Errorf("bench run %s: %w", args[0], err)
			default:
				return showReport(cmd, report, asJSON, prefix)
			}
		},
	}
	cli.CanPrintJSON(cmd, &asJSON)
	cmd.Flags().StringVarP(&prefix, "output", "o", "",
		"also write `PREFIX`.json, PREFIX.md with the table, and the plots PREFIX-KIND.svg")
	cmd.Flags().IntVar(&o.Rounds, "rounds", 0, "measure each row `N` times (default: the scenario's)")
	cli.TimeFlag(cmd, &o.Round, "seconds", 0, "a round of a row, of ndr a trial, takes `TIME`: 2, 500ms (default: the scenario's)")
	cmd.Flags().StringVar(&o.Lab, "lab", "", "scion3: use the lab `NAME` (default scion3)")
	cmd.Flags().StringSliceVar(&o.Rows, "rows", nil, "measure only the rows `ROW,...` (default all, for ndr and latency some)")
	cmd.Flags().StringSliceVar(&o.Sizes, "size", nil,
		"veth, ndr, latency: frame lengths `BYTES,...` without the frame check sequence, min for the shortest SCION packet, or for ndr imix "+
			"(default: the scenario's)")
	cmd.Flags().IntSliceVar(&o.CPUs, "cpus", nil,
		"veth: number of CPUs `N,...` for generator, device and sink, 1 or 2 (default 1, and 2 with 138 bytes)")
	cmd.Flags().StringSliceVar(&o.Groups, "groups", nil,
		"route, filter, lb: measure only the groups of rows `GROUP,...`, or those whose names begin so, up to a dash (default all)")
	cmd.Flags().IntSliceVar(&o.Nodes, "nodes", nil, "fleet: measure with `N,...` nodes (default 1000)")
	cli.CompleteFlag(cmd, "rows", benchRows)
	cli.CompleteFlag(cmd, "groups", cli.Fixed(slices.Concat(routerun.Groups(), filterrun.Groups(), lbrun.Groups())...))
	cli.CompleteFlag(cmd, "cpus", cli.Fixed("1", "2"))
	cli.CompleteFlag(cmd, "lab", cli.Labs)
	return cmd
}

// benchGroups lists the groups of the scenarios that have groups.
func benchGroups() string {
	return wrapped("route", routerun.Groups()) + wrapped("filter", filterrun.Groups()) + wrapped("lb", lbrun.Groups())
}

// wrapped returns a row of a table: a head, and words that are wrapped at 80 columns.
func wrapped(head string, words []string) string {
	var b strings.Builder
	line := fmt.Sprintf("  %-7s", head)
	for _, word := range words {
		if len(line)+len(word) > 79 {
			b.WriteString(line + "\n")
			line = strings.Repeat(" ", 9)
		}
		line += " " + strings.TrimSpace(word)
	}
	b.WriteString(line + "\n")
	return b.String()
}

// benchRows returns the rows of the scenario that args name, or of all scenarios.
func benchRows(args []string) []string {
	scenarios := args
	if len(scenarios) == 0 {
		scenarios = bench.Scenarios()
	}
	var names []string
	for _, s := range scenarios {
		names = append(names, bench.RowNames(s)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
