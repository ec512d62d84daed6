// SPDX-License-Identifier: Apache-2.0

package filtercmd

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/edit"
	"culvert/internal/filter/filterview"
	"culvert/internal/node"
	"culvert/internal/show"
	"culvert/internal/show/usage"
)

func newSetCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set",
		Short: "named sets of prefixes, or of addresses with ports, for rules",
		Long: `Named sets, which rules use with --src and --dst. A million entries cost a packet
little more than ten. A change takes effect at once: a packet meets either the old
set or the new one.

A set has prefixes of both families:

  192.0.2.1   192.0.2.0/24   192.0.2.5-192.0.2.77   2001:db8::/32

or, with --type endpoint, addresses with ports:

  192.0.2.1:53   [2001:db8::1]:53

A file has entries with blanks or line ends between them, and comments from # to
the end of a line. An entry may be followed by how long it stays: timeout 10m (90s,
12h, 1d). A file with a bad line is refused as a whole.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: cli.NeedVerb,
	}
	cmd.AddCommand(newSetAddCmd(cli.ChangeFlags), newSetReplaceCmd(cli.ChangeFlags), newSetDelCmd(cli.ChangeFlags), newSetListCmd(), newSetShowCmd())
	return cmd
}

// setFlags adds the flags of commands that add entries to a set.
func setFlags(cmd *cobra.Command, changing cli.Changing, c *edit.SetEntries, file *string) cli.Runner {
	f := cmd.Flags()
	f.StringVarP(file, "file", "f", "", "read the entries from `FILE`, - for standard input")
	f.StringVar(&c.Timeout, "timeout", "", "entries stay for `TIME`: 90s, 10m, 1d (default: until they are deleted)")
	cli.CompleteFileFlag(cmd, "file", "")
	return changing(cmd, node.RoutersHere)
}

func newSetAddCmd(changing cli.Changing) *cobra.Command {
	var (
		c      edit.SetAdd
		file   string
		change cli.Runner
	)
	cmd := &cobra.Command{
		Use:   "add NAME {ENTRY... | -f FILE}",
		Short: "add entries to a set, and make the set if there is none",
		Long: `Add entries to a set, and make the set if there is none. An entry that is in the
set already stays for the longer of the two times.`,
		Example: "  culvert filter set add bad 192.0.2.0/24 2001:db8::7 --timeout 10m\n" +
			"  culvert filter set add resolvers --type endpoint 192.0.2.53:53",
		Args:              cli.UsageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, filterSets),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := setArgs(cmd, &c.SetEntries, file, args); err != nil {
				return err
			}
			return change.Run(cmd, &c)
		},
	}
	cmd.Flags().BoolVar(&c.Replace, "replace", false, "replace all entries of the set")
	cmd.Flags().StringVar(&c.Type, "type", "", "`TYPE` of a new set's entries: prefix (default) or endpoint")
	cli.CompleteFlag(cmd, "type", cli.Fixed("prefix", "endpoint"))
	change = setFlags(cmd, changing, &c.SetEntries, &file)
	return cmd
}

func newSetReplaceCmd(changing cli.Changing) *cobra.Command {
	var (
		c      edit.SetReplace
		file   string
		change cli.Runner
	)
	cmd := &cobra.Command{
		Use:   "replace NAME {ENTRY... | -f FILE}",
		Short: "replace all entries of a set",
		Long: `Replace all entries of a set that exists. 'culvert filter set add --replace' makes
the set if there is none.`,
		Example:           "  culvert filter set replace bad -f bad.txt",
		Args:              cli.UsageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, filterSets),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := setArgs(cmd, &c.SetEntries, file, args); err != nil {
				return err
			}
			return change.Run(cmd, &c)
		},
	}
	change = setFlags(cmd, changing, &c.SetEntries, &file)
	return cmd
}

// setArgs parses NAME {ENTRY... | -f FILE} into c.
func setArgs(cmd *cobra.Command, c *edit.SetEntries, file string, args []string) (err error) {
	c.Set, c.Entries = strings.TrimPrefix(args[0], "@"), args[1:]
	if _, ok := show.Terminal(os.Stderr); ok {
		c.Progress = cmd.ErrOrStderr()
	}
	if file == "" {
		return nil
	}
	if len(c.Entries) > 0 {
		return usage.Error(errors.New("entries beside --file: give one of them"))
	}
	return c.Read(file, cmd.InOrStdin())
}

func newSetDelCmd(changing cli.Changing) *cobra.Command {
	var change cli.Runner
	cmd := &cobra.Command{
		Use:   "del NAME [ENTRY...]",
		Short: "delete a set, or entries of it",
		Long: `Delete a set that no rule uses, or entries of it. A prefix can also be deleted from
inside a larger one, whose rest stays. Entries that the set does not have are
refused.`,
		Args:              cli.UsageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, filterSets),
		RunE: func(cmd *cobra.Command, args []string) error {
			return change.Run(cmd, &edit.SetDel{Set: strings.TrimPrefix(args[0], "@"), Entries: args[1:]})
		},
	}
	change = changing(cmd, node.RoutersHere)
	return cmd
}

func newSetListCmd() *cobra.Command {
	var (
		on     string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list the sets",
		Long: `List the sets with how many entries they have and which rules use them.

With -j, an object {"sets": [...]} whose members are:

  set, type, from                     type: prefix or endpoint; from: file, hand
  count                               entries
  rules                               names of the rules that use it`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return edit.FilterError(filterview.ListSets(on, asJSON, cmd.OutOrStdout()))
		},
	}
	cli.CanPrintJSON(cmd, &asJSON)
	cli.OnFlag(cmd, &on, node.RoutersHere)
	return cmd
}

func newSetShowCmd() *cobra.Command {
	var (
		on     string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "show the entries of a set",
		Long: `Show the entries of a set, a line each, as 'culvert filter set add -f' reads
them. Adjacent prefixes are joined.

With -j, {"set", "type", "from", "entries": [...]} with the members:

  entry, seconds                      seconds: until it ends, if it does`,
		Example:           "  culvert filter set show bad",
		Args:              cli.UsageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, filterSets),
		RunE: func(cmd *cobra.Command, args []string) error {
			return edit.FilterError(filterview.ListSet(on, args[0], asJSON, cmd.OutOrStdout()))
		},
	}
	cli.CanPrintJSON(cmd, &asJSON)
	cli.OnFlag(cmd, &on, node.RoutersHere)
	return cmd
}
