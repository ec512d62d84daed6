// SPDX-License-Identifier: Apache-2.0

package fleetcmd

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/edit"
	"culvert/internal/fleet"
	"culvert/internal/show"
	"culvert/internal/show/usage"
)

// group returns a command with others below it.
func group(name, short string, commands []*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Args: cli.UsageArgs(cobra.NoArgs), RunE: cli.NeedVerb}
	cmd.AddCommand(commands...)
	return cmd
}

// runner carries changes out on all nodes.
type runner struct {
	connection
	scopeFlags
	lasts  time.Duration
	force  bool
	asJSON bool
}

// urgently is cli.Changing for the nodes of a fleet.
func urgently(cmd *cobra.Command, _ func() []string) cli.Runner {
	r := new(runner)
	if cmd.Long == "" {
		cmd.Long = strings.ToUpper(cmd.Short[:1]) + cmd.Short[1:] + "."
	}
	cmd.Long = strings.NewReplacer("culvert filter set", "culvert fleet set", "culvert filter", "culvert fleet filter", "culvert lb", "culvert fleet lb").Replace(cmd.Long) + `

All nodes do it within a second, or those of --role or --node, and it goes before
all revisions: apply and rollback do not touch it. It lasts until 'culvert fleet
undo', or for the time --for, also where etcd cannot be reached then. The command
waits for 5 s at most, lists the nodes that have not got it, and has exit status 1
then. Nodes that are not there have it once they are back. Those that do not have what
it is about, as a VIP or a rule to delete, are not concerned until they have it; if no
node has it, that is an error.

With -j, an object with id, nodes, done, unconcerned, failed, missing, away and seconds.`
	cmd.Example = strings.NewReplacer("culvert filter set", "culvert fleet set", "culvert filter", "culvert fleet filter", "culvert lb", "culvert fleet lb").Replace(cmd.Example)
	if name := cmd.Flags().Lookup("name"); name != nil {
		name.Usage = "call the rule `NAME` (default urgent- and a number of its own)"
	}
	r.flagsOf(cmd)
	return r
}

func (r *runner) flagsOf(cmd *cobra.Command) {
	cli.TimeFlag(cmd, &r.lasts, "for", 0, "it lasts for `DURATION` (default: until 'culvert fleet undo')")
	cmd.Flags().BoolVar(&r.force, "force", false, "also if no node that is there is meant")
	r.scopeFlags.flags(cmd)
	r.connection.flags(cmd)
	cli.CanPrintJSON(cmd, &r.asJSON)
}

// Run implements cli.Runner.
func (r *runner) Run(cmd *cobra.Command, q edit.Request) error {
	scope, err := r.scope()
	if err != nil {
		return err
	}
	if add, ok := q.(*edit.RuleAdd); ok && add.Rule == "" {
		add.Rule = fleet.RuleName()
	}
	if err := q.Check(); err != nil {
		return err
	}
	return r.do(cmd, func(ctx context.Context, f *fleet.Fleet) error {
		reach, err := f.Urgent(ctx, q, scope, r.lasts, r.force)
		return printReach(cmd, r.asJSON, reach, err)
	})
}

// printReach prints how far something has come. The error says that it has not come everywhere.
func printReach(cmd *cobra.Command, asJSON bool, r *fleet.Reach, err error) error {
	if err := print(cmd, asJSON, r, err, func() []string { return r.Lines() }); err != nil {
		return err
	}
	return r.Err()
}

func newDrainCmd() *cobra.Command {
	r := new(runner)
	cmd := &cobra.Command{
		Use:   "drain BACKEND",
		Short: "keep new flows from a backend, at all VIPs on all nodes",
		Long: `Keep new flows from a backend at all VIPs that have it, on all nodes with a load
balancer that has it; flows that it has stay. 'culvert fleet undrain' undoes it. It is
an urgent change: see 'culvert fleet urgent'. 'culvert fleet lb drain VIP' is for one
VIP, or for the VIP itself. Nodes without the backend are not concerned, until they
have it.

With -j, an object with id, nodes, done, unconcerned, failed, missing, away and seconds.`,
		Example: "  culvert fleet drain 10.0.0.11 --role lb --for 1h",
		Args:    cli.UsageArgs(cobra.ExactArgs(1)),
	}
	r.flagsOf(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return r.Run(cmd, &edit.Drain{Backend: &args[0]}) }
	return cmd
}

func newUndrainCmd() *cobra.Command {
	var (
		c      connection
		scope  scopeFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "undrain BACKEND",
		Short: "undo 'culvert fleet drain'",
		Long: `Undo 'culvert fleet drain' with the same BACKEND and the same --role or --node.

With -j, an object for each change that was taken back: id, nodes, done, missing,
away and seconds.`,
		Args: cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := scope.scope()
			if err != nil {
				return err
			}
			return c.do(cmd, func(ctx context.Context, f *fleet.Fleet) error {
				all, err := f.UndoSame(ctx, &edit.Drain{Backend: &args[0]}, s)
				if err != nil {
					return err
				}
				var errs []error
				for _, r := range all {
					errs = append(errs, printReach(cmd, asJSON, r, nil))
				}
				return errors.Join(errs...)
			})
		},
	}
	scope.flags(cmd)
	c.flags(cmd)
	cli.CanPrintJSON(cmd, &asJSON)
	return cmd
}

func newUrgentCmd() *cobra.Command {
	var (
		c      connection
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "urgent",
		Short: "list the urgent changes",
		Long: `List the urgent changes: for which nodes, how long they still last, by whom, what.

With -j, {"urgents": [...]} with the members id, scope, words, request, at, for, by,
left (seconds), over (the nodes whose clocks say that its time is over, while etcd
still has it).`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.do(cmd, func(ctx context.Context, f *fleet.Fleet) error {
				all, err := f.Urgents(ctx)
				if err != nil {
					return err
				}
				if asJSON {
					return show.JSON(cmd.OutOrStdout(), fleet.UrgentList{Urgents: append([]fleet.UrgentLeft{}, all...)})
				}
				return show.Lines(cmd.OutOrStdout(), fleet.UrgentLines(all))
			})
		},
	}
	c.flags(cmd)
	cli.CanPrintJSON(cmd, &asJSON)
	return cmd
}

func newUndoCmd() *cobra.Command {
	var (
		c      connection
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "undo ID...",
		Short: "take urgent changes back",
		Long: `Take urgent changes back: what was there before comes back on all nodes. A key that
somebody has written by hand, which is no urgent change, is taken away.

With -j, an object for each: id, nodes, done, missing, away and seconds.`,
		Example: "  culvert fleet undo 4711",
		Args:    cli.UsageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if slices.Contains(args, "") {
				return usage.Errorf("no ID of an urgent change: see 'culvert fleet urgent'")
			}
			return c.do(cmd, func(ctx context.Context, f *fleet.Fleet) error {
				for _, id := range args {
					r, err := f.Undo(ctx, id)
					if err := printReach(cmd, asJSON, r, err); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	c.flags(cmd)
	cli.CanPrintJSON(cmd, &asJSON)
	return cmd
}
