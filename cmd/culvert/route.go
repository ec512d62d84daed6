// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"
)

func newRouteCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "route",
		Short: "show the IP router's state and decisions, compared with the kernel's",
		Long: `Show the state and the decisions of the IP router of a data plane. Nothing is
changed, and no packet is sent. Needs root.

A data plane with a [route] table forwards IP packets by a mirror of the
kernel's routing tables, and asks the kernel where the mirror has no answer.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: needVerb,
	}
	cmd.AddCommand(newRouteGetCmd(), newRouteShowCmd(), newRouteCheckCmd())
	return cmd
}
