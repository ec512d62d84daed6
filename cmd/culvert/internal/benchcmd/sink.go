// SPDX-License-Identifier: Apache-2.0

package benchcmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/bench/load"
	"culvert/internal/show/usage"
)

// newSinkCmd is "culvert bench sink".
func newSinkCmd() *cobra.Command {
	var (
		o      load.ListenOptions
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "sink IFACE",
		Short: "count packets of 'gen blast': loss, duplicates, reordering, latency",
		Long: `Count packets that come in by an interface of this network namespace, until Ctrl-C
or for --seconds. Packets that are counted are dropped; all others go to the stack.

Counted are frames with a stamp ('culvert gen blast --stamp') of a flow below
--flows. From the stamps the sink also works out which packets of each flow are
missing, duplicates or out of order, and how long packets took. For the times,
generator and sink must be on one machine. With --port it counts all UDP packets
to that port instead, over IPv4 or IPv6 without VLAN tags.

The sink is an XDP program in native mode: no other may be on the interface. Some
drivers take the link down for a moment when it is attached or detached.`,
		Example: `  culvert bench sink veth1
  culvert bench sink veth1 --flows 100 --seconds 5 -j
  culvert bench sink veth1 --port 9 --seconds 2`,
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, cli.HostInterfaces),
		Args:              cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			changed := cmd.Flags().Changed
			if changed("seconds") && o.Duration <= 0 {
				return usage.Error(errors.New("--seconds must be above 0: leave it out to count until Ctrl-C"))
			}
			if changed("port") && (o.Port == 0 || changed("flows")) {
				return usage.Error(errors.New("--port takes a number from 1 to 65535, and no --flows beside it"))
			}
			o.Device, o.Progress = args[0], cmd.ErrOrStderr()
			r, err := load.ListenOn(cmd.Context(), o)
			if err != nil {
				return Error("bench sink "+args[0], err)
			}
			if asJSON {
				return r.WriteJSON(cmd.OutOrStdout())
			}
			return r.WriteText(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Flows, "flows", 65536, "expect `N` flows; each takes about 200 bytes of kernel memory")
	f.Uint16Var(&o.Port, "port", 0, "count UDP packets for `PORT` instead of stamped ones")
	cli.TimeFlag(cmd, &o.Duration, "seconds", 0, "count for `TIME`: 2, 500ms (default until Ctrl-C)")
	cli.CanPrintJSON(cmd, &asJSON)
	return cmd
}

// Error puts the verb in front of an error, and marks errors of options as wrong usage.
func Error(verb string, err error) error {
	if option := load.OptionError(""); errors.As(err, &option) {
		return usage.Error(err)
	}
	return fmt.Errorf("%s: %w", verb, err)
}
