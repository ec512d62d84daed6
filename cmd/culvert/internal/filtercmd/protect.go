// SPDX-License-Identifier: Apache-2.0

package filtercmd

import (
	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/edit"
	"culvert/internal/node"
)

func newProtectCmd(changing cli.Changing) *cobra.Command {
	var (
		q      edit.ServiceProtect
		change cli.Runner
	)
	cmd := &cobra.Command{
		Use:   "protect ADDRESS:PORT",
		Short: "answer SYNs to a TCP service with cookies, in the driver",
		Long: `Protect a TCP service from floods of SYNs: they are answered with SYN cookies in
the driver. There is no state for a connection until its handshake has proved that
the client exists. Only then does the service see the connection.

The service is on this host, or with --forwarded on another host to which this one
forwards. Forwarded services need a SYNPROXY rule of netfilter, which accepts the
cookies; --mss and --wscale are what the answers announce for the service, and
have to be those of the rule. For a service on this host the answers have the
kernel's values. 'culvert doctor' checks the settings of this host. Beside the IP
router no service on another host can be protected: what that forwards meets no rule.`,
		Example: "  culvert filter protect 192.0.2.1:80\n  culvert filter protect '[2001:db8::1]:443' --forwarded --mss 1440",
		Args:    cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Service = args[0]
			return change.Run(cmd, &q)
		},
	}
	cmd.Flags().BoolVar(&q.Forwarded, "forwarded", false, "the service is on another host")
	cmd.Flags().Uint16Var(&q.MSS, "mss", 0, "with --forwarded: the service takes segments of up to `BYTES` (default 1460)")
	cmd.Flags().Uint8Var(&q.WindowScale, "wscale", 0, "with --forwarded: the service scales its windows by `SHIFT` bits (default 7)")
	change = changing(cmd, node.RoutersHere)
	return cmd
}

func newUnprotectCmd(changing cli.Changing) *cobra.Command {
	var change cli.Runner
	cmd := &cobra.Command{
		Use:               "unprotect ADDRESS:PORT",
		Short:             "leave SYNs to the service again",
		Args:              cli.UsageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, func([]string) []string { return node.FilterServices() }),
		RunE: func(cmd *cobra.Command, args []string) error {
			return change.Run(cmd, &edit.ServiceUnprotect{Service: args[0]})
		},
	}
	change = changing(cmd, node.RoutersHere)
	return cmd
}
