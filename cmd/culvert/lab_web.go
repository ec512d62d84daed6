// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"culvert/internal/lab"
)

// newLabWebCmd is "culvert lab web".
func newLabWebCmd() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "web NAME",
		Short: "serve web pages: a backend of topology lb",
		Long: `Serve web pages until Ctrl-C, as the backends of topology lb do: / has NAME,
/bytes/N has N bytes, and a POST to / is answered with its length and SHA-256.
/health has the status that a PUT to it has set, 200 at first: to see what a load
balancer does with a backend whose checks fail.`,
		Example: `  culvert lab exec lb b1 curl http://127.0.0.1/health -T - <<< 503
  culvert lab web --listen :8080 here`,
		Args:              usageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: completeArgs(nothing),
		RunE: func(cmd *cobra.Command, args []string) error {
			return labError(lab.ServeWeb(cmd.Context(), listen, args[0]))
		},
	}
	cmd.Flags().StringVar(&listen, "listen", ":80", "address and port to listen on")
	return cmd
}
