// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"culvert/internal/cluster"
	"culvert/internal/cluster/access"
	"culvert/internal/cluster/agent"
	"culvert/internal/cluster/clusterbed"
	"culvert/internal/cluster/etcd"
	"culvert/internal/config"
	"culvert/internal/testbed"
)

// TestOwnCertificate has a node with a certificate of its own in an etcd that asks for them. It gets all that it follows, and reports.
// Once its certificate is revoked it says so, and what runs goes on.
func TestOwnCertificate(t *testing.T) {
	t.Parallel()
	keys := cluster.KeysOf("edge")
	dir := filepath.Join(t.TempDir(), "edge")
	authority, err := access.Init(dir, "edge")
	must(t, err)
	issue := func(file, user string, hosts ...string) *config.ClusterTLS {
		f, err := authority.Issue(dir, file, user, hosts)
		must(t, err)
		return &config.ClusterTLS{CA: f.CA, Cert: f.Cert, Key: f.Key}
	}
	member := issue("member", access.MemberName, "127.0.0.1")
	server := clusterbed.New(t, clusterbed.Options{Configure: func(c *embed.Config) {
		c.ClientTLSInfo = transport.TLSInfo{CertFile: member.Cert, KeyFile: member.Key, TrustedCAFile: member.CA, ClientCertAuth: true}
	}})
	login := func(files *config.ClusterTLS) *clientv3.Client {
		c, err := etcd.Connect(&config.Cluster{Endpoints: server.Endpoints(), TLS: files})
		must(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	root := login(issue("root", access.Root))
	must(t, access.Enable(t.Context(), root, keys))
	user := access.NewUser(access.KindNode, "n1")
	must(t, access.Allow(t.Context(), root, keys, user))
	own := login(issue("n1", user.String()))

	b := &bed{TB: t, Client: root, keys: keys}
	var log testbed.Output
	n := b.start("n1", func() (*clientv3.Client, error) { return own, nil }, func(o *agent.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	b.write(1, map[string]string{"all": "a = 1\n"})
	b.put(keys.Urgent("00000001"), urgent("00000001", "filter add", all))
	b.put(keys.Maintain("n1"), cluster.Maintain{By: "somebody", At: time.Now()})
	b.eventually("its state", func() bool {
		s := b.state("n1")
		return s.Revision == 1 && len(s.Urgent) == 1 && s.Maintain == cluster.MaintainSafe
	})
	b.put(keys.Ask(cluster.AskWhere, "1"), cluster.Ask{ID: "1", Kind: cluster.AskWhere, Scope: all, Where: "192.0.2.1"})
	b.eventually("its answer", func() bool {
		r, err := b.Get(t.Context(), keys.Answer("n1", "1"))
		return err == nil && r.Count == 1
	})
	_, err = access.Revoke(t.Context(), root, user)
	must(t, err)
	// Its state does not change, and its watches go on.
	b.eventually("the node says so", func() bool {
		v := n.View()
		return !v.Denied.IsZero() && strings.Contains(v.ReportProblem, "was revoked")
	})
	since := n.View().Denied
	server.Member(0).Kill()
	server.Member(0).Start()
	b.eventually("it goes on saying so", func() bool {
		v := n.View()
		return !v.Reached && strings.HasPrefix(v.Problem, "etcd refuses this node: ")
	})
	if !n.View().Denied.Equal(since) || strings.Count(log.String(), "etcd refuses this node") != 1 {
		t.Errorf("it is refused since %v, not %v:\n%s", n.View().Denied, since, &log)
	}
	if n.Revision() != 1 || n.Since("00000001").IsZero() {
		t.Errorf("what ran does not go on: %+v", n.View())
	}
	must(t, access.Allow(t.Context(), root, keys, user)) // as nobody does: enrolling makes another certificate
	b.eventually("it is let in again", func() bool { v := n.View(); return v.Denied.IsZero() && v.Reached && v.ReportProblem == "" })
}

// TestRenewedCertificate revokes a node's certificate and puts another one into its files: the node takes it up by itself, also where only its
// reports are refused and where etcd was away.
func TestRenewedCertificate(t *testing.T) {
	t.Parallel()
	keys := cluster.KeysOf("edge")
	authority, err := access.Init(filepath.Join(t.TempDir(), "edge"), "edge")
	must(t, err)
	member, err := authority.Issue(authority.Dir, "member", access.MemberName, []string{"127.0.0.1"})
	must(t, err)
	server := clusterbed.New(t, clusterbed.Options{Configure: func(c *embed.Config) {
		c.ClientTLSInfo = transport.TLSInfo{CertFile: member.Cert, KeyFile: member.Key, TrustedCAFile: member.CA, ClientCertAuth: true}
	}})
	files, err := authority.Issue(authority.Dir, "root", access.Root, nil)
	must(t, err)
	root, err := etcd.Connect(&config.Cluster{Endpoints: server.Endpoints(), TLS: &config.ClusterTLS{CA: files.CA, Cert: files.Cert, Key: files.Key}})
	must(t, err)
	t.Cleanup(func() { root.Close() })
	must(t, access.Enable(t.Context(), root, keys))
	dir := t.TempDir()
	own := &config.ClusterTLS{CA: files.CA, Cert: filepath.Join(dir, "node.pem"), Key: filepath.Join(dir, "node-key.pem")}
	enrol := func() access.User {
		user := access.NewUser(access.KindNode, "n1")
		must(t, access.Allow(t.Context(), root, keys, user))
		f, err := authority.Issue(t.TempDir(), "node", user.String(), nil)
		must(t, err)
		for from, to := range map[string]string{f.Key: own.Key, f.Cert: own.Cert} {
			text, err := os.ReadFile(from)
			must(t, err)
			must(t, os.WriteFile(to, text, 0o600))
		}
		return user
	}
	user := enrol()
	b := &bed{TB: t, Client: root, keys: keys}
	n := b.start("n1", func() (*clientv3.Client, error) {
		return etcd.Connect(&config.Cluster{Endpoints: server.Endpoints(), TLS: own})
	}, func(o *agent.Options) {
		o.Close, o.Certificate = true, func() string { return etcd.PairID(own) }
	})
	for _, away := range []bool{false, true} {
		b.eventually("it is let in", func() bool {
			v := n.View()
			return v.Denied.IsZero() && v.Reached && v.Writes > 0 && v.ReportProblem == ""
		})
		_, err = access.Revoke(t.Context(), root, user)
		must(t, err)
		b.eventually("it is refused", func() bool { return !n.View().Denied.IsZero() })
		if away {
			server.Member(0).Kill()
			server.Member(0).Start()
			b.eventually("its sessions are refused", func() bool { return strings.HasPrefix(n.View().Problem, "etcd refuses this node: ") })
		}
		user = enrol()
	}
	b.eventually("it is let in with the third", func() bool { v := n.View(); return v.Denied.IsZero() && v.Reached && v.ReportProblem == "" })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
