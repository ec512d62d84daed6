// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/benchcmd"
	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/bench/load"
	"culvert/internal/show/usage"
)

// newGenBlastCmd is "culvert gen blast".
func newGenBlastCmd() *cobra.Command {
	var (
		o              load.BlastOptions
		asJSON         bool
		sizes          []string
		dst, src       string
		dstMAC, srcMAC string
	)
	cmd := &cobra.Command{
		Use:   "blast IFACE",
		Short: "send packets out of an interface, as fast as one CPU can or at a rate",
		Long: `Send packets out of an interface of this network namespace, until -n or --seconds
is reached, or Ctrl-C. They are UDP packets, or the frames of a pcap file, such as
one of 'culvert gen scion'. The whole header is written for each packet. Lengths
are those of Ethernet frames without the frame check sequence: the shortest frame,
64 bytes on the wire, has length 60 here.

--stamp writes flow, sequence number and time into the last 16 bytes of each
frame, for 'culvert bench sink' at the other end on the same machine. Checksums
stay correct.

The peer of a veth must accept frames of XDP programs: either it has an XDP program
itself, such as that of 'culvert bench sink', or GRO is on. The interface of the
host's default route is refused without --force, because a flood can cut the
machine off. The exit status is 1 if the rate was not reached.`,
		Example: `  culvert gen blast veth0 --size 60 -n 1000000
  culvert gen blast veth0 --size imix --flows 100 --rate 500000 --seconds 2 --stamp -j
  culvert gen blast veth0 -r in.pcap --dst-mac 02:00:00:00:00:02 --seconds 1`,
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, cli.HostInterfaces),
		Args:              cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			changed := cmd.Flags().Changed
			for _, flag := range []string{"size", "flows", "dst", "src", "port"} {
				if o.File != "" && changed(flag) {
					return usage.Error(fmt.Errorf("--%s is for packets that are made, and -r takes those of a file: leave one out", flag))
				}
			}
			if changed("seconds") && o.Duration <= 0 || changed("count") && o.Count == 0 {
				return usage.Error(errors.New("-n and --seconds must be above 0: leave them out to send until Ctrl-C"))
			}
			err := errors.Join(
				parseInto(&o.UDP.Sizes, "size", sizes, load.ParseSizes),
				parseInto(&o.UDP.Dst, "dst", dst, netip.ParseAddr),
				parseInto(&o.UDP.Src, "src", src, netip.ParseAddr),
				parseInto(&o.DstMAC, "dst-mac", dstMAC, net.ParseMAC),
				parseInto(&o.SrcMAC, "src-mac", srcMAC, net.ParseMAC),
			)
			if err != nil {
				return usage.Error(err)
			}
			o.Device, o.Progress = args[0], cmd.ErrOrStderr()
			r, err := load.Blast(cmd.Context(), o)
			if err != nil {
				return benchcmd.Error("gen blast "+args[0], err)
			}
			write := r.WriteText
			if asJSON {
				write = r.WriteJSON
			}
			return errors.Join(write(cmd.OutOrStdout()), r.Err())
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&sizes, "size", []string{"60"}, "frames have the lengths `BYTES,...`, or imix")
	f.IntVar(&o.UDP.Flows, "flows", 1, "send `N` flows, which differ in the source port")
	f.StringVar(&src, "src", "", "source `ADDRESS` (default 198.18.0.1)")
	f.StringVar(&dst, "dst", "", "destination `ADDRESS` (default 198.19.0.1)")
	f.Uint16Var(&o.UDP.Port, "port", 9, "destination `PORT`")
	f.StringVar(&srcMAC, "src-mac", "", "source `MAC` address (default the interface's, or as in the file)")
	f.StringVar(&dstMAC, "dst-mac", "", "destination `MAC` address (default 02:00:00:00:00:02, or as in the file)")
	f.StringVarP(&o.File, "read", "r", "", "send the frames of the pcap file `FILE`")
	f.Float64Var(&o.Rate, "rate", 0, "send `N` packets a second, 0 for as many as possible")
	f.Uint64VarP(&o.Count, "count", "n", 0, "send `N` packets (default any)")
	cli.TimeFlag(cmd, &o.Duration, "seconds", 0, "send for `TIME`: 2, 500ms (default until Ctrl-C)")
	f.BoolVar(&o.Stamp, "stamp", false, "write flow, sequence number and time into each frame")
	f.IntVar(&o.CPU, "cpu", -1, "send on CPU `N` (default the last)")
	f.Lookup("cpu").DefValue = "0" // keeps the help from showing -1
	f.StringVar(&o.Generator, "generator", "kernel", "send with `PROGRAM`: kernel or tcpreplay")
	f.BoolVar(&o.Force, "force", false, "send even on the interface of the default route")
	cli.CanPrintJSON(cmd, &asJSON)
	cli.CompleteFileFlag(cmd, "read", "pcap")
	cli.CompleteFlag(cmd, "generator", cli.Fixed("kernel", "tcpreplay"))
	cli.CompleteFlag(cmd, "size", cli.Fixed("imix"))
	return cmd
}

// parseInto parses the value of a flag into to, unless the value is empty.
func parseInto[T any, V interface{ string | []string }](to *T, flag string, value V, parse func(V) (T, error)) error {
	if len(value) == 0 {
		return nil
	}
	parsed, err := parse(value)
	if err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	*to = parsed
	return nil
}
