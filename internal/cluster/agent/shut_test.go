// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"culvert/internal/cluster"
	"culvert/internal/cluster/access"
	"culvert/internal/cluster/agent"
	"culvert/internal/cluster/clusterbed"
	"culvert/internal/cluster/etcd"
	"culvert/internal/config"
)

// TestForeignCertificate has a node with a certificate of another cluster. It says so, with the endpoint.
func TestForeignCertificate(t *testing.T) {
	t.Parallel()
	own, other := filepath.Join(t.TempDir(), "own"), filepath.Join(t.TempDir(), "other")
	for _, dir := range []string{own, other} {
		must(t, access.Create(dir, "edge", []string{"https://127.0.0.1:1"}, nil))
	}
	member := access.FilesIn(own, access.MemberFile)
	server := clusterbed.New(t, clusterbed.Options{Configure: func(c *embed.Config) {
		c.ClientTLSInfo = transport.TLSInfo{CertFile: member.Cert, KeyFile: member.Key, TrustedCAFile: member.CA, ClientCertAuth: true}
	}})
	files := access.FilesIn(other, access.RootFile)
	table := &config.Cluster{Name: "edge", Endpoints: server.Endpoints(), TLS: &config.ClusterTLS{CA: member.CA, Cert: files.Cert, Key: files.Key}}
	b := &bed{TB: t, keys: cluster.KeysOf("edge")}
	n := b.start("n1", func() (*clientv3.Client, error) { return etcd.Connect(table) }, func(o *agent.Options) {
		o.Probe, o.Close = etcd.ProbeOf(table), true
	})
	want := "etcd at " + server.Endpoints()[0] + " refuses the certificate, which is of another cluster"
	b.eventually("the node says why", func() bool { return strings.HasPrefix(n.View().Problem, want) })
}
