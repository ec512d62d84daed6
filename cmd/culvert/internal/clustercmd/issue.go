// SPDX-License-Identifier: Apache-2.0

package clustercmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/cluster/access"
	"culvert/internal/show/usage"
)

// newIssueCmd is "culvert cluster issue".
func newIssueCmd() *cobra.Command {
	var dir string
	var again bool
	var hosts []string
	cmd := &cobra.Command{
		Use:   "issue {writer NAME | reader NAME | member}",
		Short: "make a certificate for an operator, or a new one for members",
		Long: `Make a certificate for an operator. A writer may change everything of the
cluster, a reader may see everything and ask nodes. The command lets the user in and
prints the directory to copy to the operator's machine, as ` + access.DefaultDir + `:
its cluster.toml is what 'culvert fleet' needs.

'issue member' replaces the certificate of members by a new one for the same
addresses, and those that --host adds. Copy it to all of them; etcd reads it with the
next connection.`,
		Example: `  culvert cluster issue writer alice
  culvert cluster issue member --host 192.0.2.4`,
		Args:              cli.UsageArgs(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing, cli.Fixed(access.KindWriter, access.KindReader, access.MemberName)),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind := args[0]
			switch {
			case kind == access.MemberName && len(args) == 1:
				return renewMember(cmd, dir, hosts)
			case kind != access.KindWriter && kind != access.KindReader:
				return usage.Error(fmt.Errorf("no certificates for %q: write 'writer NAME', 'reader NAME' or 'member'; a node gets its own with 'culvert cluster enrol'", kind))
			case len(args) != 2:
				return usage.Error(fmt.Errorf("name the %s: culvert cluster issue %s NAME", kind, kind))
			case len(hosts) > 0:
				return usage.Error(fmt.Errorf("--host is for 'issue member': a %s has no address", kind))
			}
			return admit(cmd, dir, kind, args[1], again)
		},
	}
	dirFlag(cmd, &dir)
	againFlag(cmd, &again)
	hostFlag(cmd, &hosts)
	return cmd
}

// newEnrolCmd is "culvert cluster enrol".
func newEnrolCmd() *cobra.Command {
	var dir string
	var again bool
	cmd := &cobra.Command{
		Use:   "enrol NODE",
		Short: "let a node in: its certificate, its user in etcd and its role",
		Long: `Let a node in: make its certificate, its user in etcd, and a role that reads
the cluster and writes only the state and the answers of this node. The command
prints the directory to copy to the node, as ` + access.DefaultDir + `: its
cluster.toml has the table for the node's configuration.`,
		Example:           "  culvert cluster enrol lb1",
		Args:              cli.UsageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing),
		RunE: func(cmd *cobra.Command, args []string) error {
			return admit(cmd, dir, access.KindNode, args[0], again)
		},
	}
	dirFlag(cmd, &dir)
	againFlag(cmd, &again)
	return cmd
}

func againFlag(cmd *cobra.Command, again *bool) {
	cmd.Flags().BoolVar(again, "again", false, "make another certificate where there is one, which stays good until it is revoked")
}

func admit(cmd *cobra.Command, dir, kind, name string, again bool) error {
	return withDoor(cmd.Context(), dir, func(ctx context.Context, d *access.Door) error {
		u, at, err := d.Admit(ctx, kind, name, again)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s may log in with the files in %s.\n", u, at)
		return nil
	})
}

func renewMember(cmd *cobra.Command, dir string, hosts []string) error {
	a, err := access.Open(dir)
	if err != nil {
		return err
	}
	files, err := a.RenewMember(hosts)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "Members have a new certificate: copy %s and %s to all of them.\n", files.Cert, files.Key)
	return nil
}
