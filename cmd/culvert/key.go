// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"culvert/internal/node"
)

var keyIndexes = fixed("0", "1")

func newKeyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "load and list forwarding keys by hand",
		Long: `Forwarding keys of a running data plane. A router holds up to two; a hop field
that is valid under either is good, so a rotation is: add the new key at the
other index, put the new master0.key in place and restart the control service
and the router, remove the old key once no path under it is in use.

A key is the derived one, 16 bytes in base64, not the master key. It is read from a
file of mode 0600 or from standard input, never from the command line, which everybody
sees in ps(1). Keys that 'culvert scion run' derives from keys/master0.key are loaded
beside them.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: needVerb,
	}
	cmd.AddCommand(
		newKeyAddCmd(),
		newKeyRemoveCmd(),
		newKeyListCmd(),
	)
	return cmd
}

func newKeyAddCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "add ROUTER INDEX [FILE]",
		Short: "load a key from a file, or from standard input",
		Example: `  culvert key add br1-ff00_0_1-2 1 /etc/scion/next.key
  pass show scion/next | culvert key add br1-ff00_0_1-2 1`,
		Args: usageArgs(cobra.RangeArgs(2, 3)),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 2 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return completeArgs(nothing, scionRouters, keyIndexes)(cmd, args, toComplete)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			from := node.StandardInput
			if len(args) == 3 {
				from = args[2]
			}
			return node.AddKey(args[0], args[1], from, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

func newKeyRemoveCmd() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "remove ROUTER INDEX",
		Short: "forget a key",
		Long: `Forget a key. The only one, and the one that the serving process has, go with
--force alone: valid packets are dropped without them.`,
		Args:              usageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: completeArgs(nothing, scionRouters, keyIndexes),
		RunE: func(cmd *cobra.Command, args []string) error {
			return node.RemoveKey(args[0], args[1], force, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "remove it even if packets are dropped for it")
	return cmd
}

func newKeyListCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "list ROUTER",
		Short:             "show which keys are loaded, without the keys",
		Args:              usageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: completeArgs(nothing, scionRouters),
		RunE: func(cmd *cobra.Command, args []string) error {
			return node.ListKeys(args[0], asJSON, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVarP(&asJSON, "json", "j", false, "print JSON")
	return cmd
}
