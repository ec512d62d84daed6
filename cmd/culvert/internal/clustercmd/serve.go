// SPDX-License-Identifier: Apache-2.0

package clustercmd

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/cluster/access"
	"culvert/internal/cluster/server"
	"culvert/internal/show/usage"
)

// newServeCmd is "culvert cluster serve".
func newServeCmd() *cobra.Command {
	var o server.Options
	var dir string
	var members []string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "run a member of the cluster's etcd",
		Long: `Run a member of the cluster's etcd, alone or with others, until SIGTERM. All
that comes in has to show a certificate of the cluster's authority, and from the first
start on etcd asks which user it is. The data stays for the next start.

The machine needs ca.pem, member.pem, member-key.pem and the file cluster of
'culvert cluster init'. Three members stand the loss of one. Nodes go on without
etcd, but nothing can be changed while most of its members are gone. The names and
addresses of members count at the first start alone; later ones go by the data.
culvert-etcd.service runs this, with the flags in /etc/default/culvert-etcd.

etcd keeps 5 minutes of history and 4 GiB of data at most.`,
		Example: `  culvert cluster serve
  culvert cluster serve --name a --member a=https://192.0.2.1:2380 --member b=https://192.0.2.2:2380 --member c=https://192.0.2.3:2380`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			for _, text := range members {
				m, err := server.ParseMember(text)
				if err != nil {
					return usage.Error(err)
				}
				o.Members = append(o.Members, m)
			}
			if o.Name == "" {
				if o.Name, err = os.Hostname(); err != nil {
					return err
				}
			}
			if o.Cluster, err = access.ClusterOf(dir); err != nil {
				return err
			}
			o.Files = access.FilesIn(dir, access.MemberFile)
			o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
			return server.Serve(cmd.Context(), o)
		},
	}
	dirFlag(cmd, &dir)
	f := cmd.Flags()
	f.StringVar(&o.Name, "name", "", "this member is `NAME` (default: the name of this host)")
	f.StringArrayVar(&members, "member", nil, "`NAME=URL` is a member, as the others reach it, such as a=https://192.0.2.1:2380; once for each, this one too")
	f.StringVar(&o.Listen, "listen", server.DefaultListen, "listen for nodes and operators on `ADDRESS:PORT`")
	f.StringVar(&o.Data, "data", server.DefaultData, "the data is in the directory `DIR`")
	f.BoolVar(&o.Join, "join", false, "the other members run already, and were told of this one ('etcdctl member add')")
	cli.Must(cmd.MarkFlagDirname("data"))
	return cmd
}
