// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"culvert/internal/node"
	"culvert/internal/scion"
)

func newScionCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "scion",
		Short: "run a SCION border router",
		Args:  usageArgs(cobra.NoArgs),
		RunE:  needVerb,
	}
	cmd.AddCommand(newScionRunCmd())
	return cmd
}

func newScionRunCmd() *cobra.Command {
	var file scion.Table
	var loose bool
	cmd := &cobra.Command{
		Use:   "run --config FILE",
		Short: "run the border router of a router TOML file, in place of the reference router",
		Long: `Run the border router of a router TOML file, in place of the reference router.

The TOML file, topology.json and keys/ are those of the reference router. The fast path is attached
to the network interfaces that carry the router's underlay addresses; the reference data plane runs
in this process for everything else. When the process ends the fast path stays: see culvert detach.`,
		Example: "  culvert scion run --config /etc/scion/br.toml",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError(fmt.Errorf("give the file with --config: culvert scion run --config %s", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file.Config == "" {
				return usageError(errors.New("--config is required (see 'culvert scion run --help')"))
			}
			if loose {
				file.LinkInterfaces = scion.LinksLoose
			}
			return node.RunSCION(cmd.Context(), file)
		},
	}
	cmd.Flags().StringVar(&file.Config, "config", "", "the router's TOML file (required)")
	cmd.Flags().BoolVar(&file.DebugHTTP, "debug-http", false, "serve the profiler over HTTP, and let it change the log level")
	completeFileFlag(cmd, "config", "toml")
	cmd.Flags().BoolVar(&loose, "loose-links", false,
		"take a link's datagrams by any interface, not only by the one that leads to its far end")
	return cmd
}
