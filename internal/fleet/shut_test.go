// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"culvert/internal/cluster/access"
	"culvert/internal/cluster/clusterbed"
)

// TestShut has an etcd that lets nobody in: one of another cluster, one that refuses the certificate, and a port where nobody listens. That is told
// in one line, with the endpoint and by which side, as soon as it is certain.
func TestShut(t *testing.T) {
	t.Parallel()
	own, other := filepath.Join(t.TempDir(), "own"), filepath.Join(t.TempDir(), "other")
	for _, dir := range []string{own, other} {
		if err := access.Create(dir, "edge", []string{"https://127.0.0.1:1"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	files := access.FilesIn(own, access.MemberFile)
	at := clusterbed.New(t, clusterbed.Options{Configure: func(c *embed.Config) {
		c.ClientTLSInfo = transport.TLSInfo{CertFile: files.Cert, KeyFile: files.Key, TrustedCAFile: files.CA, ClientCertAuth: true}
	}}).Member(0).Endpoint()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "https://" + l.Addr().String()
	l.Close()
	for _, tt := range []struct{ name, endpoint, authority, certificate, want string }{
		{"an etcd of another cluster", at, other, other, "etcd at " + at + " is of another cluster: the certificate that it shows is not of the authority in this cluster's ca.pem"},
		{"a certificate of another cluster", at, own, other, "etcd at " + at + " refuses the certificate, which is of another cluster"},
		{"nobody listens", nobody, own, own, "etcd at " + nobody + " is not there, since nobody listens (connection refused)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := access.FilesIn(tt.certificate, access.RootFile)
			f := opened(t, tt.endpoint, fmt.Sprintf("tls = { ca = %q, cert = %q, key = %q }", access.FilesIn(tt.authority, access.RootFile).CA, root.Cert, root.Key))
			if _, err := f.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "reading the states of nodes, cluster edge: "+tt.want) {
				t.Errorf("status: %v", err)
			}
			if !ends(t, f) {
				t.Error("a call goes on although no member lets this side in")
			}
		})
	}
}

// TestSilentIsWaitedFor has an etcd that is slow, and one that goes away after it has answered: both are waited for.
func TestSilentIsWaitedFor(t *testing.T) {
	t.Parallel()
	member := clusterbed.New(t, clusterbed.Options{}).Member(0)
	f := opened(t, member.Endpoint(), "")
	member.Proxy().Silence()
	if ends(t, f) {
		t.Error("an etcd that is slow is not waited for")
	}
	member.Proxy().Heal()
	if _, err := f.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone := opened(t, "http://127.0.0.1:1", "")
	gone.answered.Store(true)
	if ends(t, gone) {
		t.Error("an etcd that has answered before is not waited for")
	}
}

// opened returns the cluster of a file with an endpoint.
func opened(t *testing.T, endpoint, more string) *Fleet {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fleet.toml")
	if err := os.WriteFile(path, fmt.Appendf(nil, "[cluster]\nname = \"edge\"\nendpoints = [%q]\n%s\n", endpoint, more), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path, "me@here")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// ends tells whether a call without an answer is ended before its time.
func ends(t *testing.T, f *Fleet) (early bool) {
	t.Helper()
	err := f.told(t.Context(), "waiting", func(ctx context.Context) error {
		wait := 4 * time.Second // more than a probe takes
		if strings.HasPrefix(f.etcd.Endpoints()[0], "https") {
			wait = time.Minute
		}
		select {
		case <-ctx.Done():
			early = true
		case <-time.After(wait):
		}
		return context.DeadlineExceeded
	})
	if err == nil {
		t.Error("no error")
	}
	return early
}
