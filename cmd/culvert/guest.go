// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"culvert/internal/guest"
)

// newGuestCmd is "culvert guest", the first process of a guest.
func newGuestCmd() *cobra.Command {
	return &cobra.Command{
		Use:    "guest",
		Short:  "do a guest's work: only for the first process of one",
		Hidden: true,
		Args:   usageArgs(cobra.NoArgs),
		RunE:   func(cmd *cobra.Command, _ []string) error { return guest.Init(cmd.Context()) },
	}
}
