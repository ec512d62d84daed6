// SPDX-License-Identifier: Apache-2.0

package filtercmd

import (
	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/edit"
	"culvert/internal/filter/filterview"
	"culvert/internal/node"
)

func newDumpCmd() *cobra.Command {
	var o filterview.DumpOptions
	cmd := &cobra.Command{
		Use:   "dump",
		Short: "write rules, sets and protected services as a configuration file",
		Long: `Write the filter that runs as a configuration file: rules in their order, protected
services, sets with their entries, whether they are from the file or made by hand.
'culvert check' accepts it, and a data plane that is started from it has the same
filter. Its name, mode and interfaces are in it, unless --tables leaves them out.

With --by-hand it is a drop-in, for a data plane that has a file: only what was made
by hand, without name, mode and interfaces. Once the file is read again that is the
file's, and not in the next such dump: write each to a drop-in of its own.

Entries are in the dump. With --sets they are in a file for each set, DIR/NAME.set:
better for very many, and for those that a program writes.

What no file can express is a comment that begins with "warning:" and a line on
standard error. Entries with a timeout have the time that was left. Counters and the
state of limits are left out.`,
		Example: "  culvert filter dump > new.toml && culvert check -c new.toml\n" +
			"  culvert filter dump --by-hand > /etc/culvert/culvert.d/z-filter-$(date +%F-%H%M%S).toml\n" +
			"  culvert filter dump --sets /etc/culvert/sets > new.toml",
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out, o.Warn, o.Others = cmd.OutOrStdout(), cmd.ErrOrStderr(), node.BesideFilter
			return edit.FilterError(filterview.Dump(o))
		},
	}
	cmd.Flags().StringVar(&o.Sets, "sets", "", "write the entries of sets into files in the directory `DIR`")
	cli.Must(cmd.MarkFlagDirname("sets"))
	cli.DumpFlags(cmd, &o.Options)
	cli.OnFlag(cmd, &o.On, node.RoutersHere)
	return cmd
}
