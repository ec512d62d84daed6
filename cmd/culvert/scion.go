// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/node"
	"culvert/internal/scion"
	"culvert/internal/show/usage"
	"culvert/internal/stages"
)

func newScionCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "scion",
		Short: "run a SCION border router",
		Args:  cli.UsageArgs(cobra.NoArgs),
		RunE:  cli.NeedVerb,
	}
	cmd.AddCommand(newScionRunCmd())
	return cmd
}

func newScionRunCmd() *cobra.Command {
	var file scion.Table
	var loose bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "run a SCION border router, in place of the reference router",
		Long: `Run a SCION border router, in place of the reference router. The file is the reference router's own
TOML file, or culvert's with a [scion] table that names it. With culvert's file this is 'culvert run'.

The TOML file, topology.json and keys/ are those of the reference router. The fast path is attached
to the network interfaces that have the router's underlay addresses. The reference data plane runs
in this process for all other packets. The fast path stays when the process ends: see culvert detach.`,
		Example: "  culvert scion run -c /etc/scion/br.toml",
		Args:    cli.FileByFlag,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.HaveConfig(cmd, file.Config); err != nil {
				return err
			}
			own, err := stages.IsNode(file.Config)
			if err != nil {
				return err
			}
			if own {
				return runSCIONOf(cmd, file)
			}
			if loose {
				file.LinkInterfaces = scion.LinksLoose
			}
			return node.RunSCION(cmd.Context(), file)
		},
	}
	cli.ConfigFlag(cmd, &file.Config, cli.DefaultConfig, "configuration `FILE`: the SCION router's own, or culvert's")
	cmd.Flags().BoolVar(&file.DebugHTTP, "debug-http", false, "serve the profiler over HTTP, and let it change the log level")
	cmd.Flags().BoolVar(&loose, "loose-links", false,
		"accept a link's datagrams by any interface, not only by the one that leads to its far end")
	return cmd
}

// runSCIONOf runs culvert's own configuration, which has keys for what the flags set.
func runSCIONOf(cmd *cobra.Command, file scion.Table) error {
	for flag, key := range map[string]string{"debug-http": "debug_http = true", "loose-links": `link_interfaces = "loose"`} {
		if cmd.Flags().Changed(flag) {
			return usage.Error(fmt.Errorf("--%s goes with the SCION router's own file: write %s into [scion] of %s", flag, key, file.Config))
		}
	}
	n, err := stages.Load(file.Config)
	switch {
	case err != nil:
		return err
	case n.Tables[scion.Stage{}.Name()] == nil:
		return fmt.Errorf("%s has no [scion]: use culvert run -c %[1]s", file.Config)
	}
	return node.Run(cmd.Context(), file.Config)
}
