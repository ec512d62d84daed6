// SPDX-License-Identifier: Apache-2.0

package fleetcmd

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/cluster"
	"culvert/internal/fleet"
	"culvert/internal/show"
	"culvert/internal/show/usage"
)

func newApplyCmd() *cobra.Command {
	var (
		c      connection
		scope  scopeFlags
		steps  stepFlags
		apply  fleet.Apply
		resume bool
	)
	cmd := &cobra.Command{
		Use:   "apply {FILE | SCOPE=FILE...}",
		Short: "bring a configuration to the nodes, in steps that go back by themselves",
		Long: `Make FILE the document of all nodes, of those with --role, or of one --node. What a
node runs is its own file with the documents of all nodes, of its roles and its own,
in this order; each adds to those before. Several documents change together as
SCOPE=FILE, where SCOPE is all, role/NAME or node/NAME. An empty file takes a
document away, with --force. Files that [[filter.set]] names go along.

First everything is checked that depends on no host, for each set of documents that
nodes merge; then nodes check it themselves. Only then a new revision is written. It
comes to nodes in steps: first the canary, then further ones. A step is done when its
nodes run the revision and all so far have been in good health for --wait without a
break. If one refuses the revision, does not run it --within the time, gets into bad
health or goes away, all go back to the revision before, and the exit status is 1.
Nodes that are not there are listed and stop nothing; they run the revision once they
are back.

If this command ends half-way, nodes stay as they are. --resume goes on, and 'culvert
fleet rollback' goes back. One of them runs at a time.`,
		Example: `  culvert fleet apply edge.toml -m "drop NTP answers"
  culvert fleet apply lb.toml --role lb --canary 2 --step 10% --wait 1m
  culvert fleet apply all=all.toml role/lb=lb.toml
  culvert fleet apply --resume`,
		Args:              cli.UsageArgs(cobra.ArbitraryArgs),
		ValidArgsFunction: cli.CompleteArgs(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			if resume {
				if len(args) > 0 {
					return usage.Error(errors.New("files beside --resume: it goes on with what was begun"))
				}
				return c.do(cmd, func(ctx context.Context, f *fleet.Fleet) error { return f.Resume(ctx, teller(cmd)) })
			}
			var err error
			if apply.Changes, err = changes(cmd, &scope, args); err != nil {
				return err
			}
			apply.Steps = steps.Steps
			return c.do(cmd, func(ctx context.Context, f *fleet.Fleet) error { return f.Apply(ctx, apply, teller(cmd)) })
		},
	}
	scope.flags(cmd)
	steps.flags(cmd)
	cmd.Flags().StringVarP(&apply.Comment, "message", "m", "", "a `COMMENT` for the history")
	cmd.Flags().BoolVar(&apply.Force, "force", false, "write documents for roles and nodes that are not there, too, and take away those whose files are empty")
	cmd.Flags().BoolVar(&resume, "resume", false, "go on with a rollout that has stopped half-way")
	c.flags(cmd)
	return cmd
}

// changes reads the files of arguments: FILE for the scope of the flags, or SCOPE=FILE.
func changes(cmd *cobra.Command, flags *scopeFlags, args []string) (all []fleet.Change, err error) {
	if len(args) == 0 {
		return nil, usage.Error(errors.New("no file: give the new document, - for standard input"))
	}
	scope, err := flags.scope()
	if err != nil {
		return nil, err
	}
	for _, arg := range args {
		change := fleet.Change{Scope: scope, File: arg}
		if of, file, ok := strings.Cut(arg, "="); ok {
			if s, err := cluster.ParseScope(of); err == nil {
				if flags.role != "" || flags.node != "" {
					return nil, usage.Errorf("%s beside --role or --node: give one of them", arg)
				}
				change.Scope, change.File = s, file
			} else if !cli.IsFile(arg) {
				return nil, usage.Errorf("%s: %w", arg, err)
			}
		}
		if err := change.Read(cmd.InOrStdin()); err != nil {
			return nil, err
		}
		all = append(all, change)
	}
	return all, nil
}

func newDiffCmd() *cobra.Command {
	var (
		c     connection
		scope scopeFlags
	)
	cmd := &cobra.Command{
		Use:   "diff {FILE | SCOPE=FILE... | REV [REV]}",
		Short: "show in which lines documents differ from those that run, or revisions from each other",
		Long: `Show in which lines new documents differ from those of the revision that runs, with
the same arguments as 'culvert fleet apply'; or in which a revision differs from the
one that runs, or two revisions from each other. It prints nothing if nothing differs.
A file that is named like a number is ./7.`,
		Example:           "  culvert fleet diff lb.toml --role lb\n  culvert fleet diff 6 7",
		Args:              cli.UsageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.do(cmd, func(ctx context.Context, f *fleet.Fleet) (err error) {
				var lines []string
				if revisions := numbers(args); revisions != nil {
					lines, err = diffRevisions(ctx, f, revisions)
				} else {
					var all []fleet.Change
					if all, err = changes(cmd, &scope, args); err == nil {
						lines, err = f.DiffChanges(ctx, all)
					}
				}
				if err != nil || len(lines) == 0 {
					return err
				}
				return show.Lines(cmd.OutOrStdout(), lines)
			})
		},
	}
	scope.flags(cmd)
	c.flags(cmd)
	return cmd
}

// numbers returns arguments that all are numbers of revisions, nil if they are not.
func numbers(args []string) (all []int64) {
	for _, arg := range args {
		n, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || n < 0 || len(args) > 2 {
			return nil
		}
		all = append(all, n)
	}
	return all
}

func diffRevisions(ctx context.Context, f *fleet.Fleet, revisions []int64) ([]string, error) {
	if len(revisions) == 2 {
		return f.Diff(ctx, revisions[0], revisions[1])
	}
	current, err := f.Current(ctx)
	if err != nil {
		return nil, err
	}
	return f.Diff(ctx, revisions[0], current.Revision)
}

func newHistoryCmd() *cobra.Command {
	var (
		c       connection
		verbose bool
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "history",
		Short: "list the revisions, and who did what",
		Long: `List the revisions, the newest first: which runs and which went back, when each was
written, by whom, and which documents it changed. With -v also who did what: applied, went back, changed
something urgently, took a node out of service. Keys that somebody has written by
hand, and that are not as culvert writes them, are named below.

With -j, an object with current (revision, rollout), revisions, back, damaged (keys that
are not as culvert has written them, in a line each), and with -v audit.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.do(cmd, func(ctx context.Context, f *fleet.Fleet) error {
				h, err := f.History(ctx, verbose)
				return print(cmd, asJSON, h, err, func() []string { return h.Lines() })
			})
		},
	}
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "also who did what")
	c.flags(cmd)
	cli.CanPrintJSON(cmd, &asJSON)
	return cmd
}

// print prints a value as JSON or lines, unless there is an error.
func print(cmd *cobra.Command, asJSON bool, value any, err error, lines func() []string) error {
	switch {
	case err != nil:
		return err
	case asJSON:
		return show.JSON(cmd.OutOrStdout(), value)
	}
	return show.Lines(cmd.OutOrStdout(), lines())
}

func newRollbackCmd() *cobra.Command {
	var (
		c     connection
		steps stepFlags
	)
	cmd := &cobra.Command{
		Use:   "rollback [REV]",
		Short: "bring an earlier revision to the nodes",
		Long: `Bring an earlier revision to the nodes, in the same steps as 'culvert fleet apply':
the one before that which runs, or REV. 0 is that of the nodes' own files alone. A
rollout that has stopped half-way goes back at once, on all nodes that it has
reached. Urgent changes stay.`,
		Example: "  culvert fleet rollback\n  culvert fleet rollback 12 --canary 0 --step 100% --wait 2s",
		Args:    cli.UsageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			to := int64(fleet.Before)
			if len(args) == 1 {
				n := numbers(args)
				if n == nil {
					return usage.Errorf("%q is no revision: see 'culvert fleet history'", args[0])
				}
				to = n[0]
			}
			return c.do(cmd, func(ctx context.Context, f *fleet.Fleet) error { return f.Rollback(ctx, to, steps.Steps, teller(cmd)) })
		},
	}
	steps.flags(cmd)
	c.flags(cmd)
	return cmd
}
