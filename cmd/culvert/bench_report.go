// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"culvert/internal/bench/report"
)

// checkReportPrefix refuses a prefix that no files can be written for; none is fine.
func checkReportPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	return report.CheckPrefix(prefix)
}

// showReport prints a report, and writes it to files if there is a prefix for their names. Invalid rows are an error,
// once everything is written.
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

// errBase marks a wrong --base as wrong usage.
func errBase(err error) error {
	if errors.Is(err, report.ErrNoBase) {
		return usageError(err)
	}
	return err
}
