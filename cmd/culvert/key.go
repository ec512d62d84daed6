// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/edit"
	"culvert/internal/node"
)

var keyIndexes = cli.Fixed("0", "1")

func newKeyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "load and list forwarding keys by hand",
		Long: `Forwarding keys of a running data plane. A router has up to two, and accepts hop
fields that are valid under either. To rotate keys, add the new key at the other
index, replace master0.key, restart the control service and the router, and delete
the old key when no path under it is in use any more. With tables [[scion.key]] in
the file keys follow a schedule instead, which list shows.

A key is the derived one, 16 bytes in base64, not the master key. It is read from a
file of mode 0600 or from standard input, and not from the command line, which every
user can read in ps(1). Keys that 'culvert scion run' derives from keys/master0.key
are loaded beside them.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: cli.NeedVerb,
	}
	cmd.AddCommand(
		newKeyAddCmd(),
		newKeyDelCmd(),
		newKeyListCmd(),
	)
	return cmd
}

func newKeyAddCmd() *cobra.Command {
	var change cli.Runner
	cmd := &cobra.Command{
		Use:   "add INDEX [FILE]",
		Short: "load a key from a file, or from standard input",
		Example: `  culvert key add 1 /etc/scion/next.key
  pass show scion/next | culvert key add 1 --on br1-ff00_0_1-2`,
		Args: cli.UsageArgs(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return cli.CompleteArgs(cli.Nothing, keyIndexes)(cmd, args, toComplete)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			from := edit.StandardInput
			if len(args) == 2 {
				from = args[1]
			}
			index, err := edit.KeyIndex(args[0])
			if err != nil {
				return err
			}
			key, err := edit.ReadKey(from, cmd.InOrStdin())
			if err != nil {
				return err
			}
			return change.Run(cmd, edit.NewKey(index, key))
		},
	}
	change = cli.ChangeFlags(cmd, node.SCIONRouters)
	return cmd
}

func newKeyDelCmd() *cobra.Command {
	var (
		q      edit.KeyDel
		change cli.Runner
	)
	cmd := &cobra.Command{
		Use:   "del INDEX",
		Short: "delete a key",
		Long: `Delete a key. The only key, and the key of the process that serves, are deleted
only with --force, because valid packets are dropped without them. A key of the
schedule in the file is not deleted, not even with --force, because the process
would go on accepting it: take its table [[scion.key]] out of the file, and
reload.`,
		Args:              cli.UsageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, keyIndexes),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if q.Index, err = edit.KeyIndex(args[0]); err != nil {
				return err
			}
			return change.Run(cmd, &q)
		},
	}
	cmd.Flags().BoolVar(&q.Force, "force", false, "delete the key even if packets will be dropped")
	change = cli.ChangeFlags(cmd, node.SCIONRouters)
	return cmd
}

func newKeyListCmd() *cobra.Command {
	var (
		on     string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list the keys by ID, with the schedule if they follow one",
		Args:  cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return edit.ListKeys(on, asJSON, cmd.OutOrStdout())
		},
	}
	cli.OnFlag(cmd, &on, node.SCIONRouters)
	cli.CanPrintJSON(cmd, &asJSON)
	return cmd
}
