// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"culvert/internal/bench/report"
)

// newBenchPlotCmd is "culvert bench plot".
func newBenchPlotCmd() *cobra.Command {
	var prefix string
	cmd := &cobra.Command{
		Use:   "plot REPORT.json",
		Short: "draw a report as SVG",
		Long: `Draw what a report has figures for, each kind as a file of its own:
` + strings.Join(report.PlotKinds(), ", ") + `.
The names of the files are printed. The same report gives the same files.`,
		Example: "  culvert bench run cost -j > /tmp/cost.json\n  culvert bench plot /tmp/cost.json   # writes /tmp/cost-cost.svg",
		Args:    usageArgs(cobra.ExactArgs(1)),
		// The shell's own completion of files.
		ValidArgsFunction: completeArgs(nothing, nil),
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
