// SPDX-License-Identifier: Apache-2.0

package clustercmd

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"culvert/internal/cluster/access"
	"culvert/internal/cluster/clusterbed"
)

// newCluster makes a cluster with an etcd that runs, and returns its directory.
func newCluster(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "edge")
	const nobody = "https://127.0.0.1:1"
	if err := access.Create(dir, "edge", []string{nobody}, nil); err != nil {
		t.Fatal(err)
	}
	files := access.FilesIn(dir, access.MemberFile)
	bed := clusterbed.New(t, clusterbed.Options{Configure: func(c *embed.Config) {
		c.ClientTLSInfo = transport.TLSInfo{CertFile: files.Cert, KeyFile: files.Key, TrustedCAFile: files.CA, ClientCertAuth: true}
	}})
	path := filepath.Join(dir, access.TableFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.ReplaceAll(text, []byte(nobody), []byte(bed.Endpoints()[0])), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// run runs 'culvert cluster' with arguments for the cluster in a directory.
func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := New()
	cmd.SetArgs(append(args, "--dir", dir))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("culvert cluster %v: %v\n%s", args, err, &out)
	}
	return out.String()
}

// TestList lists who may log in: root alone at first, then the nodes and operators that were let in, and no more those that were revoked.
func TestList(t *testing.T) {
	dir := newCluster(t)
	// Each line is as one of these, in their order.
	expect := func(lines ...string) {
		t.Helper()
		got := strings.Split(strings.TrimSuffix(run(t, dir, "list"), "\n"), "\n")
		for n, want := range append([]string{`KIND +NAME +ID +UNTIL +WRITES`, `root +- +- +- +everything; it cannot be revoked`}, lines...) {
			if n >= len(got) || !regexp.MustCompile("^"+want+"$").MatchString(got[n]) {
				t.Fatalf("line %d is not %q:\n%s", n+1, want, strings.Join(got, "\n"))
			}
		}
		if want := len(lines) + 2; len(got) != want {
			t.Errorf("%d lines, want %d:\n%s", len(got), want, strings.Join(got, "\n"))
		}
	}
	const id, until = ` +[0-9a-f]{8} +`, `20[0-9]{2}-[0-9]{2}-[0-9]{2} +`
	node := func(name string) string {
		return "node +" + name + id + until + "/culvert/edge/answer/" + name + `/\* /culvert/edge/node/` + name
	}
	writer := "writer +alice" + id + until + `/culvert/edge/\*`
	reader := "reader +bob" + id + until + `/culvert/edge/ask/where/\*`
	expect()
	run(t, dir, "enrol", "lb2")
	run(t, dir, "enrol", "lb1")
	run(t, dir, "issue", "writer", "alice")
	run(t, dir, "issue", "reader", "bob")
	expect(node("lb1"), node("lb2"), reader, writer)
	run(t, dir, "enrol", "lb1", "--again")
	expect(node("lb1"), node("lb1"), node("lb2"), reader, writer)
	run(t, dir, "revoke", "lb1")
	run(t, dir, "revoke", "bob")
	expect(node("lb2"), writer)
	if err := os.RemoveAll(filepath.Join(dir, "issued")); err != nil { // as on another machine
		t.Fatal(err)
	}
	expect(strings.Replace(node("lb2"), until, "- +", 1), strings.Replace(writer, until, "- +", 1))
	run(t, dir, "revoke", "lb2")
	run(t, dir, "revoke", "alice")
	expect()
}
