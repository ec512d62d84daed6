// SPDX-License-Identifier: Apache-2.0

// Package routecmd has the constructors of 'culvert route'.
package routecmd

import (
	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
)

// New returns 'culvert route' with its verbs.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "route",
		Short: "show the IP router's state and decisions, compared with the kernel's",
		Long: `Show the state and the decisions of the IP router of a data plane. Nothing is
changed, and no packet is sent. Needs root.

A data plane with a [route] table forwards IP packets by a mirror of the
kernel's routing tables, and asks the kernel where the mirror has no answer.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: cli.NeedVerb,
	}
	cmd.AddCommand(newGetCmd(), newShowCmd(), newCheckCmd())
	return cmd
}
