// SPDX-License-Identifier: Apache-2.0

package lbcmd

import (
	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/edit"
	"culvert/internal/lb"
	"culvert/internal/node"
)

func newVIPCmd(changing cli.Changing) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "vip",
		Short: "add, change and delete VIPs",
		Args:  cli.UsageArgs(cobra.NoArgs),
		RunE:  cli.NeedVerb,
	}
	cmd.AddCommand(newVIPAddCmd(changing), newVIPSetCmd(changing), newVIPDelCmd(changing))
	return cmd
}

// vipFlags adds the flags that describe a VIP.
func vipFlags(cmd *cobra.Command, s *lb.VIPSpec) {
	f := cmd.Flags()
	f.StringVar(&s.Hash, "hash", "", "assign backends by `KEY`: flow; source: one for a client; source-port: one for a client's port")
	f.StringVar(&s.OnFailure, "on-failure", "", "flows of a backend that fails: `ACTION` is keep, or move to others")
	f.StringVar(&s.Encap, "encap", "", "send packets to new backends by `ENCAP`: ipip, gue or l2")
	s.ServerID, s.IDConfig = new(uint8), new(uint8)
	f.Uint8Var(s.ServerID, "quic-server-id", 0, "QUIC connection IDs have a server ID of `N` bytes, 0 for none")
	f.Uint8Var(s.IDConfig, "quic-config", 0, "config rotation `N` of such connection IDs")
	s.VLANs = new([]uint16)
	f.Var(&vlanFlag{s.VLANs}, "vlans", "answer on the VLANs `ID,...` beside those for which this host has a device, such as 100,200; none: no others")
	f.StringVar(&s.Check.Type, "check", "", "check backends by `TYPE`: tcp, http, https or udp; none: do not")
	f.Uint16Var(&s.Check.Port, "check-port", 0, "check `PORT` (default: the VIP's)")
	cli.TimeFlag(cmd, &s.Check.Interval, "check-interval", 0, "find a failure within `TIME` (default 1s)")
	cli.TimeFlag(cmd, &s.Check.Timeout, "check-timeout", 0, "an answer may take `TIME` (default 500ms)")
	f.IntVar(&s.Check.Rise, "check-rise", 0, "a backend is up after `N` answers in a row (default 2)")
	f.IntVar(&s.Check.Fall, "check-fall", 0, "a backend is down after `N` failures in a row (default 2)")
	f.StringVar(&s.Check.Path, "check-path", "", "ask for `PATH` by HTTP (default /)")
	f.StringVar(&s.Check.Host, "check-host", "", "ask for `HOST` by HTTP")
	f.StringVar(&s.Check.Status, "check-status", "", "take the HTTP `STATUS` as good: 200, 200-399 (the default)")
	f.StringVar(&s.Check.Send, "check-send", "", "send `TEXT` by TCP or UDP")
	f.StringVar(&s.Check.Expect, "check-expect", "", "the answer has to begin with `TEXT`")
	cli.CompleteFlag(cmd, "hash", cli.Fixed(lb.HashFlow, lb.HashSource, lb.HashSourcePort))
	cli.CompleteFlag(cmd, "on-failure", cli.Fixed(lb.FailKeep, lb.FailMove))
	cli.CompleteFlag(cmd, "encap", cli.Fixed(lb.EncapIPIP, lb.EncapGUE, lb.EncapL2))
	cli.CompleteFlag(cmd, "check", cli.Fixed("tcp", "http", "https", "udp", lb.NoCheck))
}

// givenVIP returns the values of the flags that were given.
func givenVIP(cmd *cobra.Command, s lb.VIPSpec) edit.VIPSettings {
	if !cmd.Flags().Changed("quic-server-id") {
		s.ServerID = nil
	}
	if !cmd.Flags().Changed("quic-config") {
		s.IDConfig = nil
	}
	if !cmd.Flags().Changed("vlans") {
		s.VLANs = nil
	}
	return edit.NewVIP(s)
}

func newVIPAddCmd(changing cli.Changing) *cobra.Command {
	var (
		spec   lb.VIPSpec
		change cli.Runner
	)
	cmd := &cobra.Command{
		Use:   "add VIP",
		Short: "add a VIP, which has no backends yet",
		Long: `Add a VIP. While it has no backend that takes new flows, packets to it are
dropped, or left to the kernel if that would not forward them. Add backends with
'culvert lb backend add'.

Checks connect to the VIP's address with the same encapsulation as clients'
packets, so they test the whole path. A backend is in service until a check fails.`,
		Example:           "  culvert lb vip add 192.0.2.1:80/tcp --check http --check-path /health\n  culvert lb vip add [2001:db8::1]:443/udp --encap gue --quic-server-id 2",
		Args:              cli.UsageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing),
		RunE: func(cmd *cobra.Command, args []string) error {
			return change.Run(cmd, &edit.VIPAdd{VIP: args[0], VIPSettings: givenVIP(cmd, spec)})
		},
	}
	vipFlags(cmd, &spec)
	change = changing(cmd, node.LBDataPlanes)
	return cmd
}

func newVIPSetCmd(changing cli.Changing) *cobra.Command {
	var (
		spec   lb.VIPSpec
		change cli.Runner
	)
	cmd := &cobra.Command{
		Use:   "set VIP",
		Short: "change a VIP",
		Long: `Change the settings that are given; the others stay. Its backends keep their
encapsulation: change that with 'culvert lb backend set'. Settings of the
configuration file are restored when the file is read again.`,
		Example:           "  culvert lb vip set 192.0.2.1:80/tcp --on-failure move --check-interval 2s",
		Args:              cli.UsageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, lbVIPs),
		RunE: func(cmd *cobra.Command, args []string) error {
			return change.Run(cmd, &edit.VIPSet{VIP: args[0], VIPSettings: givenVIP(cmd, spec)})
		},
	}
	vipFlags(cmd, &spec)
	change = changing(cmd, node.LBDataPlanes)
	return cmd
}

func newVIPDelCmd(changing cli.Changing) *cobra.Command {
	var change cli.Runner
	cmd := &cobra.Command{
		Use:               "del VIP",
		Short:             "delete a VIP with its backends",
		Args:              cli.UsageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, lbVIPs),
		RunE: func(cmd *cobra.Command, args []string) error {
			return change.Run(cmd, &edit.VIPDel{VIP: args[0]})
		},
	}
	change = changing(cmd, node.LBDataPlanes)
	return cmd
}

// vlanFlag is the value of a flag with a list of VLANs: "100,200", or "none".
type vlanFlag struct{ ids *[]uint16 }

func (f *vlanFlag) String() string {
	if f.ids == nil {
		return ""
	}
	return lb.VLANWords(*f.ids)
}

func (f *vlanFlag) Type() string { return "list" }

func (f *vlanFlag) Set(text string) (err error) {
	*f.ids, err = lb.ParseVLANs(text)
	return err
}
