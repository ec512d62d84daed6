// SPDX-License-Identifier: Apache-2.0

package clustercmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/cluster/access"
)

// newInitCmd is "culvert cluster init".
func newInitCmd() *cobra.Command {
	var dir string
	var endpoints, hosts []string
	cmd := &cobra.Command{
		Use:   "init NAME",
		Short: "make the authority and the first certificates of a cluster",
		Long: `Make the authority and the first certificates of a cluster: the certificate of
the members of its etcd, and that of root, who lets others in. Nothing is
overwritten, and nothing is sent.

  ca.pem, ca-key.pem          the authority. Whoever has its key is everybody:
                              keep it off machines that do not need it
  member.pem, member-key.pem  for the machines that etcd runs on, with the file
                              cluster, which has the name
  root.pem, root-key.pem      for 'culvert cluster' itself
  cluster.toml                the table [cluster] with the certificate of root`,
		Example: `  culvert cluster init edge
  culvert cluster init edge --endpoint https://192.0.2.1:2379 --endpoint https://192.0.2.2:2379 --endpoint https://192.0.2.3:2379`,
		Args:              cli.UsageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: cli.CompleteArgs(cli.Nothing),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := access.Create(dir, args[0], endpoints, hosts); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Cluster %s is in %s. Next: culvert cluster serve, then culvert cluster enrol NODE.\n", args[0], dir)
			return nil
		},
	}
	dirFlag(cmd, &dir)
	cmd.Flags().StringArrayVar(&endpoints, "endpoint", []string{"https://127.0.0.1:2379"}, "clients reach a member of etcd at `URL`; may be repeated")
	hostFlag(cmd, &hosts)
	return cmd
}

// hostFlag adds further addresses of members.
func hostFlag(cmd *cobra.Command, hosts *[]string) {
	cmd.Flags().StringArrayVar(hosts, "host", nil, "the certificate of members is also for `ADDRESS`, or the name of a machine; may be repeated")
}
