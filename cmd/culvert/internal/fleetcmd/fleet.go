// SPDX-License-Identifier: Apache-2.0

// Package fleetcmd has the constructors of 'culvert fleet'.
package fleetcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/cmd/culvert/internal/filtercmd"
	"culvert/cmd/culvert/internal/lbcmd"
	"culvert/internal/cluster"
	"culvert/internal/fleet"
	"culvert/internal/show"
	"culvert/internal/show/usage"
)

// defaultConfig is an operator's own file, with [cluster] and the operator's certificate. Without it the node's file is read.
const defaultConfig = "/etc/culvert/fleet.toml"

// New returns 'culvert fleet' with its verbs.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "many machines as one: changes in steps, urgent changes, one view",
		Long: `What an operator does with the nodes of a cluster, from any machine that reaches its
etcd: bring a configuration to them in steps that go back by themselves, change
something on all of them within a second, look at all of them, take one out of
service. See docs/fleet.md.

The table [cluster] of a file says where etcd is, and which certificate to use:

  [cluster]
  name = "edge"
  endpoints = ["https://192.0.2.1:2379"]
  [cluster.tls]
  ca = "ca.pem"
  cert = "writer.pem"
  key = "writer-key.pem"

It is read from /etc/culvert/fleet.toml, and without that from
/etc/culvert/culvert.toml. The rest of the file is not looked at.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: cli.NeedVerb,
		// The flags of a mistyped verb are not what is wrong.
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
	}
	rules, sets := filtercmd.Urgent(urgently)
	cmd.AddCommand(
		newApplyCmd(), newDiffCmd(), newHistoryCmd(), newRollbackCmd(),
		newStatusCmd(), newWatchCmd(), newWhereCmd(),
		group("filter", "urgent changes of the filter's rules on all nodes", rules),
		group("set", "urgent changes of the filter's sets on all nodes", sets),
		group("lb", "urgent changes of the load balancer on all nodes", lbcmd.Urgent(urgently)),
		newDrainCmd(), newUndrainCmd(), newUrgentCmd(), newUndoCmd(),
		newMaintainCmd(), newResumeCmd(), newForgetCmd(),
	)
	return cmd
}

// connection is how a command reaches a cluster.
type connection struct{ config string }

// flags adds -c.
func (c *connection) flags(cmd *cobra.Command) {
	cli.ConfigFlag(cmd, &c.config, "", "find the cluster by [cluster] of `FILE` (default "+defaultConfig+", or "+cli.DefaultConfig+")")
}

// open connects to the cluster. Errors of etcd come with the first call.
func (c *connection) open() (*fleet.Fleet, error) {
	if c.config != "" {
		return fleet.Open(c.config, operator())
	}
	for _, file := range []string{defaultConfig, cli.DefaultConfig} {
		if cli.IsFile(file) {
			return fleet.Open(file, operator())
		}
	}
	return nil, usage.Error(fmt.Errorf("no cluster: there is no %s and no %s, and none is given with -c FILE", defaultConfig, cli.DefaultConfig))
}

// do calls a function with the cluster.
func (c *connection) do(cmd *cobra.Command, what func(context.Context, *fleet.Fleet) error) error {
	f, err := c.open()
	if err != nil {
		return err
	}
	defer f.Close()
	return what(cmd.Context(), f)
}

// operator returns USER@HOST. With sudo it is who has called it.
func operator() string {
	name := os.Getenv("SUDO_USER")
	if name == "" {
		name = fmt.Sprint(os.Getuid())
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}

// teller tells how a command goes on.
func teller(cmd *cobra.Command) fleet.Teller {
	_, terminal := show.Terminal(cmd.OutOrStdout())
	return fleet.Teller{Out: cmd.OutOrStdout(), Terminal: terminal}
}

// scopeFlags say for which nodes something is.
type scopeFlags struct{ role, node string }

func (s *scopeFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.role, "role", "", "for the nodes with `ROLE` (default: all nodes)")
	cmd.Flags().StringVar(&s.node, "node", "", "for the node `NODE` (default: all nodes)")
}

func (s *scopeFlags) scope() (cluster.Scope, error) {
	text := cluster.ScopeAll
	switch {
	case s.role != "" && s.node != "":
		return cluster.Scope{}, usage.Error(errors.New("--role beside --node: give one of them"))
	case s.role != "":
		text = cluster.ScopeRole + "/" + s.role
	case s.node != "":
		text = cluster.ScopeNode + "/" + s.node
	}
	scope, err := cluster.ParseScope(text)
	if err != nil {
		return scope, usage.Error(err)
	}
	return scope, nil
}

// stepFlags say how a revision comes to nodes.
type stepFlags struct{ fleet.Steps }

func (s *stepFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&s.Canary, "canary", 1, "the first step has `N` nodes, 0 for none of its own")
	f.StringVar(&s.Step, "step", "25%", "each further step has `NODES`, a number or a share of those to reach")
	cli.TimeFlag(cmd, &s.Wait, "wait", 10*time.Second, "nodes have to be in good health for `TIME` before the next step")
	cli.TimeFlag(cmd, &s.Within, "within", 30*time.Second, "nodes have `TIME` for running the revision")
}
