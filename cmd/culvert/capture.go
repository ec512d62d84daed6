// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/capture"
	"culvert/internal/node"
)

// defaultSnap is as much of a frame as tcpdump shows.
const defaultSnap = capture.MaxSnap

func newCaptureCmd() *cobra.Command {
	var o capture.Options
	cmd := &cobra.Command{
		Use:   "capture [flags] ['EXPRESSION']",
		Short: "show packets as they come in and go out, with the verdict on each",
		Long: `Show the packets of a data plane: as they come in, as they go out, and what
happened to each. Other captures do not see them: what culvert redirects or drops
never reaches the kernel's.

An expression is one of libpcap (pcap-filter(7)), in one argument or several. A
packet whose frame matches as it comes in is shown with the frame that goes out.
Where only the frame that goes out matches, that one is shown alone. A packet that is
dropped, or goes to the kernel or to the slow path, has no frame that goes out. --verdict, --reason and --stage select by
what happened. 'man culvert-reasons' explains the reasons. What no packet can be is
refused, such as a reason of another stage, or an interface without culvert.

Lines are those of tcpdump, if there is one, with the verdict and a number at the
end, which is that of the packet. With -w packets go to a pcapng file, or with - to
standard output, for Wireshark: the verdict is in the comment of each frame, and
both frames of a packet have the same ID. The count at the end is that of the packets
that are there as a whole, also if the disk is full. A reader of standard output that
goes away, as head(1) does, ends the capture.

With --trace lines below each packet that came in say what each stage made of it, in
their order: rules of the filter that match; VIP, flow entry, place on the ring and
backend; the SCION path with hop field, MAC, key and link; route and next hop. They
are worked out after the fact, from the frame and the state of the stages some time
later. Where that leads elsewhere than the packet went, a line begins with CHANGED.
Packets that come faster than they are explained are shown, and counted.

The programs are replaced while packets are captured, without losing one, and are
as before at the end, also if culvert is killed. A packet that the expression does
not match takes a few more instructions meanwhile. Packets for which there was no
room are counted. Only one capture at a time is possible on a data plane.
Needs root, and the network namespace of the data plane.`,
		Example: `  culvert capture -n 10 udp
  culvert capture -i eth0 --in --verdict drop
  culvert capture --trace -n 1 dst host 192.0.2.7
  culvert capture --reason scion-mac -w bad.pcapng
  culvert capture -w - tcp port 443 | tshark -r -`,
		Args: cli.UsageArgs(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Expression = strings.Join(args, " ")
			o.Stdout, o.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return capture.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&o.Interfaces, "interface", "i", nil, "packets that come in or go out by the interface `IFACE`; may be repeated (default: all)")
	cli.CompleteFlag(cmd, "interface", cli.AttachedInterfaces)
	f.BoolVar(&o.In, "in", false, "show only frames that come in")
	f.BoolVar(&o.Out, "out", false, "show only frames that go out")
	f.StringVar(&o.Verdict, "verdict", "", "only packets with the `VERDICT` pass, punt, drop or fwd")
	cli.CompleteFlag(cmd, "verdict", func([]string) []string { return capture.Verdicts() })
	f.StringVar(&o.Reason, "reason", "", "only packets with the reason `NAME`")
	cli.CompleteFlag(cmd, "reason", func([]string) []string { return capture.Reasons() })
	f.StringVar(&o.Stage, "stage", "", "only packets with a reason of the stage `NAME`")
	cli.CompleteFlag(cmd, "stage", func([]string) []string { return capture.Stages() })
	f.IntVarP(&o.Snap, "snap", "s", defaultSnap, "show at most `BYTES` of a frame")
	f.IntVarP(&o.Count, "count", "n", 0, "stop after `N` packets, 0 for never")
	f.IntVar(&o.Sample, "sample", 1, "show one of `N` packets, at random")
	f.StringVarP(&o.Write, "write", "w", "", "write a pcapng file to `FILE`, - for standard output")
	cli.CompleteFileFlag(cmd, "write", "pcapng")
	f.BoolVar(&o.Trace, "trace", false, "explain each packet's way through the stages: what was looked up, and what followed")
	cli.OnFlag(cmd, &o.On, node.RoutersHere)
	return cmd
}
