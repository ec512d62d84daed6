// SPDX-License-Identifier: Apache-2.0

package benchcmd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/bench/report"
	"culvert/internal/show/usage"
)

// checkReportPrefix returns an error if no files can be written under a prefix. "" is for no files.
func checkReportPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	return report.CheckPrefix(prefix)
}

// showReport prints a report, and writes it to files if prefix is not "". If rows are invalid it returns an error after it has
// written everything.
func showReport(cmd *cobra.Command, r *report.Report, asJSON bool, prefix string) error {
	write := r.WriteTable
	if asJSON {
		write = r.WriteJSON
	}
	if err := write(cmd.OutOrStdout()); err != nil {
		return err
	}
	if prefix != "" {
		files, err := r.WriteFiles(prefix)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s\n", strings.Join(files, ", "))
	}
	if rows := r.Invalid(); len(rows) > 0 {
		return fmt.Errorf("bench run %s: not valid: %s: the notes of the report say why", r.Scenario, strings.Join(rows, ", "))
	}
	return nil
}

// errBase marks an error of --base as wrong usage.
func errBase(err error) error {
	if errors.Is(err, report.ErrNoBase) {
		return usage.Error(err)
	}
	return err
}

// newCompareCmd is "culvert bench compare".
func newCompareCmd() *cobra.Command {
	var (
		asJSON bool
		base   string
		most   float64
	)
	cmd := &cobra.Command{
		Use:   "compare OLD.json NEW.json",
		Short: "say what changed beyond noise between two reports",
		Long: `Compare two reports of the same scenario, row by row. Rates are compared as
multiples of a peer's rate in the same round, costs as multiples of an empty
program's, so that the speed of the machine cancels out. The verdict is faster
or slower if the median moved by 2 % or more and the test of Mann and Whitney
on the rounds gives p < 0.01; otherwise it is same. Instructions are exact, so any
difference counts. The row that others are compared with is called base.`,
		Example: "  culvert bench run veth -j > /tmp/old.json\n  culvert bench run veth -j > /tmp/new.json\n" +
			"  culvert bench compare /tmp/old.json /tmp/new.json\n" +
			"  culvert bench compare /tmp/old.json /tmp/new.json --fail-on-slower 5",
		Args:              cli.UsageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, nil, nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			limited := cmd.Flags().Changed("fail-on-slower")
			if limited && !(most >= 0) {
				return usage.Error(errors.New("--fail-on-slower must be 0 or above"))
			}
			before, err := report.Read(args[0])
			if err != nil {
				return err
			}
			after, err := report.Read(args[1])
			if err != nil {
				return err
			}
			c, err := report.Compare(before, after, base)
			if err != nil {
				return errBase(fmt.Errorf("compare %s with %s: %w", args[0], args[1], err))
			}
			write := c.WriteTable
			if asJSON {
				write = c.WriteJSON
			}
			if err := write(cmd.OutOrStdout()); err != nil {
				return err
			}
			if rows := c.SlowerThan(most); limited && len(rows) > 0 {
				return fmt.Errorf("slower by more than %g %%, or invalid: %s", most, strings.Join(rows, ", "))
			}
			return nil
		},
	}
	cli.CanPrintJSON(cmd, &asJSON)
	cmd.Flags().StringVar(&base, "base", "", "`ROW` to compare rates with (default redirect, direct, bridge or reference)")
	cmd.Flags().Float64Var(&most, "fail-on-slower", 0, "exit with status 1 if a row is slower by more than `PERCENT`, or invalid")
	cli.CompleteFlag(cmd, "base", benchRows)
	return cmd
}

// newPlotCmd is "culvert bench plot".
func newPlotCmd() *cobra.Command {
	var prefix string
	cmd := &cobra.Command{
		Use:   "plot REPORT.json",
		Short: "draw a report as SVG",
		Long: `Draw the figures of a report, each kind as a file of its own:
` + strings.Join(report.PlotKinds(), ", ") + `.
The names of the files are printed. The same report gives the same files.`,
		Example: "  culvert bench run cost -j > /tmp/cost.json\n  culvert bench plot /tmp/cost.json   # writes /tmp/cost-cost.svg",
		Args:    cli.UsageArgs(cobra.ExactArgs(1)),
		// The shell completes files.
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := report.Read(args[0])
			if err != nil {
				return err
			}
			if prefix == "" {
				prefix = report.Prefix(args[0])
			}
			if err := checkReportPrefix(prefix); err != nil {
				return err
			}
			files, err := r.WritePlots(prefix)
			for _, f := range files {
				fmt.Fprintln(cmd.OutOrStdout(), f)
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&prefix, "output", "o", "", "write `PREFIX`-KIND.svg (default the name of the report without .json)")
	return cmd
}
