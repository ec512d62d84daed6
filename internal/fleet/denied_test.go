// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"culvert/internal/cluster"
	"culvert/internal/cluster/access"
	"culvert/internal/cluster/clusterbed"
	"culvert/internal/cluster/etcd"
	"culvert/internal/config"
)

// TestDenied has a reader write, a writer of a cluster with another name, and one that was revoked: each is told what is wrong.
func TestDenied(t *testing.T) {
	t.Parallel()
	keys := cluster.KeysOf("edge")
	dir := filepath.Join(t.TempDir(), "edge")
	authority, err := access.Init(dir, "edge")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	issue := func(file, user string, hosts ...string) *config.ClusterTLS {
		f, err := authority.Issue(dir, file, user, hosts)
		must(err)
		return &config.ClusterTLS{CA: f.CA, Cert: f.Cert, Key: f.Key}
	}
	member := issue("member", access.MemberName, "127.0.0.1")
	server := clusterbed.New(t, clusterbed.Options{Configure: func(c *embed.Config) {
		c.ClientTLSInfo = transport.TLSInfo{CertFile: member.Cert, KeyFile: member.Key, TrustedCAFile: member.CA, ClientCertAuth: true}
	}})
	as := func(name, file, user string) *Fleet {
		c, err := etcd.Connect(&config.Cluster{Endpoints: server.Endpoints(), TLS: issue(file, user)})
		must(err)
		t.Cleanup(func() { c.Close() })
		return New(c, name, "me@here")
	}
	root := as("edge", "root", access.Root)
	must(access.Enable(t.Context(), root.etcd, keys))
	reader, writer := access.NewUser(access.KindReader, "r"), access.NewUser(access.KindWriter, "w")
	must(access.Allow(t.Context(), root.etcd, keys, reader))
	must(access.Allow(t.Context(), root.etcd, keys, writer))
	good := as("edge", "w", writer.String())
	try := func(what, want string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	_, err = good.States(t.Context())
	must(err)
	try("a reader", "this certificate may not: use one for a writer", as("edge", "r", reader.String()).put(t.Context(), keys.Lock(), "x"))
	_, err = as("egde", "w2", writer.String()).States(t.Context())
	try("another name", "no cluster here is called egde", err)
	_, err = access.Revoke(t.Context(), root.etcd, writer)
	must(err)
	_, err = good.States(t.Context())
	try("a revoked one", "it was revoked", err)
	try("a revoked one that writes", "it was revoked", good.put(t.Context(), keys.Lock(), "x"))
}
