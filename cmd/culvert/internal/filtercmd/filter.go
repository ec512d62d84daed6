// SPDX-License-Identifier: Apache-2.0

// Package filtercmd has the constructors of 'culvert filter'.
package filtercmd

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/filter"
	"culvert/internal/node"
	"culvert/internal/show/usage"
)

// New returns 'culvert filter' with its verbs.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "filter",
		Short: "drop, count and limit packets in the driver, by tcpdump's expressions",
		Long: `The packet filter of a running data plane: rules in tcpdump's language, sets of
addresses, limits, services protected from floods of SYNs. Needs root.

The filter sees a packet before everything else. The first rule that matches and
drops or passes decides. A change takes effect on all interfaces at once: a packet
meets either all old rules or all new ones. Counters belong to the name of a rule.
No process is needed, and one that serves the data plane makes the changes; the data
plane keeps the rules until they are deleted or it is detached. Rules that should be there from the start belong into the [filter]
table of the configuration (see 'culvert run --help').

'culvert run' or 'culvert attach' make a data plane. A file with interfaces and an
empty [filter] table makes one that only filters.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: cli.NeedVerb,
	}
	cmd.AddCommand(
		newAddCmd(cli.ChangeFlags), newListCmd(), newWatchCmd(), newDelCmd(cli.ChangeFlags), newFlushCmd(cli.ChangeFlags), newTestCmd(), newDumpCmd(),
		newSetCmd(), newProtectCmd(cli.ChangeFlags), newUnprotectCmd(cli.ChangeFlags), newTopCmd(),
	)
	return cmd
}

// Urgent returns the verbs for rules, and those for sets, that may also be carried out on all nodes of a fleet, with what runs them there.
func Urgent(changing cli.Changing) (rules, sets []*cobra.Command) {
	return []*cobra.Command{newAddCmd(changing), newDelCmd(changing), newProtectCmd(changing), newUnprotectCmd(changing)},
		[]*cobra.Command{newSetAddCmd(changing), newSetDelCmd(changing)}
}

func filterRules(args []string) []string { return cli.Unused(node.FilterRules(), args) }

func filterSets(args []string) []string { return cli.Unused(node.FilterSets(), args) }

// setRefs completes references of rules to sets.
func setRefs([]string) []string {
	var refs []string
	for _, name := range node.FilterSets() {
		refs = append(refs, "@"+name, "!@"+name)
	}
	return refs
}

// ruleFlags adds flags for the parts of a rule other than action, rate and expression.
func ruleFlags(cmd *cobra.Command, s *filter.Spec, file *string) {
	f := cmd.Flags()
	f.StringArrayVar(&s.Src, "src", nil, "the source is in `SET`, @NAME, or not in it, !@NAME; may be repeated")
	f.StringArrayVar(&s.Dst, "dst", nil, "the destination is in `SET`, @NAME, or not in it, !@NAME; may be repeated")
	f.StringVarP(file, "file", "f", "", "read the expression, or a program, from `FILE`")
	f.StringVar(&s.Per, "per", "", "what has a rate of its own: `KEY` is src, dst, or with prefix lengths src/24,48")
	f.StringVar(&s.Burst, "burst", "", "let through `SIZE` packets or bytes, as 64kB, at once")
	f.IntVar(&s.Entries, "entries", 0, "keep rates of at least `N` addresses")
	f.BoolVar(&s.All, "all", false, "confirm that the rule drops or passes every packet")
	cli.CompleteFlag(cmd, "src", setRefs)
	cli.CompleteFlag(cmd, "dst", setRefs)
	cli.CompleteFlag(cmd, "per", cli.Fixed("src", "dst", "src/24,48", "dst/24,48"))
	cli.CompleteFileFlag(cmd, "file", "")
}

// ruleArgs parses ACTION [RATE] [EXPRESSION...] into s. file replaces the expression.
func ruleArgs(cmd *cobra.Command, s *filter.Spec, file string, args []string) error {
	if len(args) == 0 {
		return usage.Error(errors.New("no action: give drop, pass, count or limit RATE"))
	}
	s.Action, args = args[0], args[1:]
	if s.Action == "limit" && len(args) > 0 {
		s.Rate, args = args[0], args[1:]
	}
	switch {
	case file != "" && len(args) > 0:
		return usage.Error(errors.New("an expression beside --file: give one of them"))
	case len(args) == 1 && args[0] == "-":
		file = "-"
	case len(args) > 0:
		text := strings.Join(args, " ")
		s.Expression = &text
	}
	if file == "" {
		return nil
	}
	text, err := filter.ReadText(file, cmd.InOrStdin())
	if err != nil {
		return err
	}
	s.Expression = &text
	return nil
}

// completeRule completes an action. It completes nothing behind it, where the expression stands.
func completeRule(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return cli.CompleteArgs(cli.Nothing, cli.Fixed(filter.Actions...))(cmd, args, typed)
}
