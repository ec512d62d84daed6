// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"culvert/internal/bench"
	"culvert/internal/guest"
)

// newBenchInsnCmd is "culvert bench insn".
func newBenchInsnCmd() *cobra.Command {
	var (
		o      guest.InsnOptions
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "insn",
		Short: "count the instructions that a packet takes, in guests with Debian's kernels",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Progress = cmd.ErrOrStderr()
			counts, err := guest.CountInstructions(cmd.Context(), o)
			switch {
			case errors.Is(err, bench.ErrUnknown):
				return usageError(err)
			case err != nil:
				return fmt.Errorf("bench insn: %w", err)
			case asJSON:
				return guest.WriteJSON(cmd.OutOrStdout(), counts)
			default:
				return guest.WriteTable(cmd.OutOrStdout(), counts)
			}
		},
	}
	cmd.Flags().BoolVarP(&asJSON, "json", "j", false, "print JSON")
	cmd.Flags().StringSliceVar(&o.Lines, "kernel", nil, "lines of kernels, separated by commas (default 6.1,6.12)")
	cmd.Flags().StringSliceVar(&o.Rows, "rows", nil, "rows to count, separated by commas (default all)")
	return cmd
}
