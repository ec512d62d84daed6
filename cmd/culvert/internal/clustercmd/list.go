// SPDX-License-Identifier: Apache-2.0

package clustercmd

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/cluster/access"
	"culvert/internal/show"
	"culvert/internal/show/text"
)

// newListCmd is "culvert cluster list".
func newListCmd() *cobra.Command {
	var dir string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list who may log in, and what they may do",
		Long: `List the certificates that etcd knows, with what they may read and write. UNTIL
is when the certificate ends, if its files are still here.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDoor(cmd.Context(), dir, func(ctx context.Context, d *access.Door) error {
				all, err := d.List(ctx)
				if err != nil {
					return err
				}
				if asJSON {
					return show.JSON(cmd.OutOrStdout(), all)
				}
				return writeUsers(cmd.OutOrStdout(), all)
			})
		},
	}
	dirFlag(cmd, &dir)
	cli.CanPrintJSON(cmd, &asJSON)
	return cmd
}

func writeUsers(w io.Writer, all []access.Grant) error {
	var t text.Table
	t.Add("KIND", "NAME", "ID", "UNTIL", "WRITES")
	t.Add(access.Root, "-", "-", "-", "everything; it cannot be revoked")
	for _, g := range all {
		until := "-"
		if g.Until != nil {
			until = g.Until.Format("2006-01-02")
		}
		t.Add(g.Kind, g.Name, g.ID, until, strings.Join(g.Writes, " "))
	}
	return show.Lines(w, t.Lines())
}
