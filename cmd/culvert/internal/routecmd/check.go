// SPDX-License-Identifier: Apache-2.0

package routecmd

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/node"
	"culvert/internal/route/routeview"
	"culvert/internal/show"
	"culvert/internal/show/usage"
)

func newCheckCmd() *cobra.Command {
	o := routeview.CheckOptions{Samples: routeview.DefaultSamples}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "compare the mirror with the kernel's routing tables",
		Long: `Compare the mirror with the kernel. The first and last address of every prefix of
the tables local, main and default, the addresses next to them, every prefix of the
mirror and all neighbors are compared with the tables. Samples of addresses in and
around the prefixes are compared with the kernel's answers. Where the mirror asks
the kernel there can be no difference; such addresses are only counted. Differences
are checked again after 200 ms, because routes may be changing.

At most 20 differences are shown. The exit status is 1 if there are any, or if
the mirror is not current. A family without a mirror, and one that is left to
the kernel, has nothing to compare.

With -j, an object with the members:

  router, ok                          ok: current, and no differences
  ipv4, ipv6                          by, why, stale_seconds as in 'culvert route
                                      show'; prefixes, addresses, samples,
                                      asked, changed, differences
  differences                         address, fast_path, kernel, text`,
		Example: "  culvert route check\n  culvert route check --samples 100000 -j | jq .ok",
		Args:    cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Samples < 0 {
				return usage.Error(errors.New("--samples must be 0 or more"))
			}
			if _, ok := show.Terminal(os.Stderr); ok {
				o.Progress = cmd.ErrOrStderr()
			}
			return routeview.Check(o, asJSON, cmd.OutOrStdout())
		},
	}
	cli.OnFlag(cmd, &o.Name, node.IPRouters)
	cmd.Flags().IntVar(&o.Samples, "samples", routeview.DefaultSamples, "ask the kernel for `N` addresses of each family")
	cli.CanPrintJSON(cmd, &asJSON)
	return cmd
}
