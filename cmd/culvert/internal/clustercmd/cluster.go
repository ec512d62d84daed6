// SPDX-License-Identifier: Apache-2.0

// Package clustercmd has the constructors of 'culvert cluster'.
package clustercmd

import (
	"context"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/cluster/access"
)

// New returns 'culvert cluster' with its verbs.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "make a cluster, run its etcd, and let nodes and operators in",
		Long: `Make a cluster of machines with one configuration, run its etcd, and say who
may read and change it. 'culvert fleet' changes what the machines run.

A cluster has an authority of its own for certificates, in a directory that root
alone may read. The common name of a certificate is a user of etcd, and
the user's role says what it may do: a reader sees everything, a writer changes
it, a node sees everything and writes only its own state. Needs root.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: cli.NeedVerb,
	}
	cmd.AddCommand(newInitCmd(), newServeCmd(), newIssueCmd(), newEnrolCmd(), newRevokeCmd(), newListCmd())
	return cmd
}

// dirFlag adds the directory of the cluster's files.
func dirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", access.DefaultDir, "the cluster's files are in the directory `DIR`")
	cli.Must(cmd.MarkFlagDirname("dir"))
}

// withDoor calls do with the door of the cluster in dir.
func withDoor(ctx context.Context, dir string, do func(context.Context, *access.Door) error) error {
	d, err := access.OpenDoor(ctx, dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return do(ctx, d)
}
