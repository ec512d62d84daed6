// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/node"
	"culvert/internal/show/usage"
)

func newReloadCmd() *cobra.Command {
	var (
		which  node.Which
		r      node.Request
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "have a process read its configuration again",
		Long: `Have the process of 'culvert run' read its configuration file, the drop-ins and all
files that they name again, bring what differs into force while packets flow, and
say what that is. It is in force as a whole when reload returns, or not at all: what
is refused is said with file, line and column, and what was in force goes on.
'culvert status' then says that the file differs. SIGHUP does the same, and the log
has the outcome. Needs root.

Rules, sets, VIPs, backends and BGP neighbors change in the maps of the program that
runs. For other interfaces, stages, workers and sizes of tables a new program takes
over, as when culvert is started again: flows and counters stay. What was made by
hand stays too. Other names and modes need a new start.

--confirm is for changes that may lock you out: the configuration before comes back
by itself unless 'culvert reload --keep' follows in time. A process that is started
again meanwhile reads the file.

Without --on or -c, it is the only process that serves a data plane in this network
namespace.

With -j, an object:

  ok                                  whether it is in force, or would be
  name, file                          the data plane, and its configuration
  dry_run                             whether nothing was touched
  changes, notes                      lines of text
  new_program                         whether a new program was loaded
  until                               when it goes back, with --confirm
  milliseconds                        how long it took
  errors                              file, line, column (where known), error`,
		Example: `  culvert reload --dry-run
  culvert reload --confirm 60 && ssh edge true && culvert reload --keep`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case r.Keep && (r.DryRun || cmd.Flags().Changed("confirm")):
				return usage.Error(errors.New("--keep goes alone"))
			case r.DryRun && cmd.Flags().Changed("confirm"):
				return usage.Error(errors.New("--dry-run changes nothing, so there is nothing to confirm: leave one of them out"))
			case cmd.Flags().Changed("confirm") && r.Confirm <= 0:
				return usage.Error(errors.New("--confirm needs a time of more than 0"))
			}
			return node.ShowReload(cmd.Context(), which, r, asJSON, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cli.ConfigFlag(cmd, &which.File, "", "the process that runs the configuration `FILE`")
	cli.OnFlag(cmd, &which.On, node.RoutersHere)
	cmd.Flags().BoolVar(&r.DryRun, "dry-run", false, "only say what would change")
	cli.TimeFlag(cmd, &r.Confirm, "confirm", 0, "go back after `TIME`, in seconds or as 90s, unless --keep follows")
	cmd.Flags().BoolVar(&r.Keep, "keep", false, "keep what a reload with --confirm has brought into force")
	cli.CanPrintJSON(cmd, &asJSON)
	return cmd
}
