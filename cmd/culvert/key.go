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

A key is the derived one, 16 bytes in base64, not the master key. Keys that
'culvert scion run' derives from keys/master0.key are loaded beside them.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: needVerb,
	}
	cmd.AddCommand(
		&cobra.Command{
			Use:               "add ROUTER INDEX BASE64",
			Short:             "load a key",
			Example:           "  culvert key add br1-ff00_0_1-2 1 mQrJ6sVrX0XxXc8kz3M3YA==",
			Args:              usageArgs(cobra.ExactArgs(3)),
			ValidArgsFunction: completeArgs(nothing, scionRouters, keyIndexes),
			RunE: func(cmd *cobra.Command, args []string) error {
				return node.AddKey(args[0], args[1], args[2], cmd.OutOrStdout())
			},
		},
		newKeyRemoveCmd(),
		newKeyListCmd(),
	)
	return cmd
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
