// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"culvert/internal/cluster/clusterbed"
	"culvert/internal/cluster/etcd"
	"culvert/internal/config"
)

// TestDoor lets a node and operators in from the directory of a cluster, and out again.
func TestDoor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "edge")
	bed := bedOf(t, dir)
	ctx := t.Context()
	d, err := OpenDoor(ctx, dir)
	must(t, err)
	t.Cleanup(d.Close)

	lb1, at, err := d.Admit(ctx, KindNode, "lb1", false)
	must(t, err)
	node := login(t, at)
	_, err = node.Put(ctx, keys.Node("lb1"), "{}")
	must(t, err)
	if _, err := node.Put(ctx, keys.Current(), "{}"); err == nil {
		t.Error("a node says what all run")
	}
	if info, err := os.Stat(filepath.Join(at, "node-key.pem")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the node's key: %v, %v", info, err)
	}
	if _, _, err := d.Admit(ctx, KindNode, "lb1", false); err == nil || !strings.Contains(err.Error(), "--again") {
		t.Errorf("enrolled twice: %v", err)
	}
	if _, _, err := d.Admit(ctx, KindNode, "a/b", false); err == nil {
		t.Error("a node's name has a slash")
	}
	_, _, err = d.Admit(ctx, KindNode, "lb1", true)
	must(t, err)
	_, _, err = d.Admit(ctx, KindWriter, "lb1", false)
	must(t, err)

	all, err := d.List(ctx)
	must(t, err)
	if len(all) != 3 || all[0].Until == nil {
		t.Errorf("users %+v", all)
	}
	for what, want := range map[string]string{"lb1": "write node:lb1 or writer:lb1", "root": "root cannot be revoked", "lb2": "nobody is called lb2"} {
		if _, err := d.Expel(ctx, what); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("revoke %s: %v", what, err)
		}
	}
	gone, err := d.Expel(ctx, lb1.String())
	if err != nil || len(gone) != 1 || gone[0] != lb1 {
		t.Errorf("revoked %v, %v", gone, err)
	}
	if _, err := node.Get(ctx, keys.Current()); !refused(err) {
		t.Errorf("a certificate that was revoked gets %v", err)
	}
	if r, err := d.client.Get(ctx, keys.Node("lb1")); err != nil || r.Count != 1 {
		t.Errorf("the state of a node with another certificate: %v, %v", r, err)
	}
	if gone, err = d.Expel(ctx, "node:lb1"); err != nil || len(gone) != 1 {
		t.Errorf("revoked %v, %v", gone, err)
	}
	if r, err := d.client.Get(ctx, keys.Node("lb1")); err != nil || r.Count != 0 {
		t.Errorf("the state of a node without a certificate: %v, %v", r, err)
	}

	// Somebody else's files are refused in one line that says who refuses.
	other := filepath.Join(t.TempDir(), "other")
	must(t, Create(other, "edge", bed.Endpoints(), nil))
	if _, err := OpenDoor(ctx, other); err == nil || !strings.Contains(err.Error(), "is of another cluster: the certificate that it shows") {
		t.Errorf("another cluster's authority: %v", err)
	}
	foreign := config.ClusterTLS{CA: filepath.Join(dir, CAFile), Cert: FilesIn(other, RootFile).Cert, Key: FilesIn(other, RootFile).Key}
	conf, err := etcd.TLS(&foreign)
	must(t, err)
	if err := etcd.Probe(ctx, bed.Endpoints(), conf); err == nil || !strings.Contains(err.Error(), "refuses the certificate, which is of another cluster") {
		t.Errorf("another cluster's certificate: %v", err)
	}
	bed.Member(0).Kill()
	if _, err := OpenDoor(ctx, dir); err == nil {
		t.Error("an etcd that has ended answers")
	}
}

// TestOthersKeys does not turn on users in an etcd that others use without.
func TestOthersKeys(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "edge")
	bedOf(t, dir)
	d, err := OpenDoor(t.Context(), dir)
	must(t, err)
	t.Cleanup(d.Close)
	_, err = d.client.Put(t.Context(), "/registry/pods", "x")
	must(t, err)
	if _, _, err := d.Admit(t.Context(), KindNode, "lb1", false); err == nil || !strings.Contains(err.Error(), "1 keys of others") {
		t.Errorf("a node let in: %v", err)
	}
	if entries, _ := os.ReadDir(filepath.Join(dir, issuedDir)); len(entries) > 0 {
		t.Errorf("a certificate was issued: %v", entries)
	}
}

// TestCreate refuses what cannot be, leaves nothing behind then, and does not overwrite.
func TestCreate(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "edge")
	for _, c := range []struct{ name, endpoint, host string }{
		{"a/b", "https://h:1", "h"}, {"edge", "http://h:1", "h"}, {"edge", "https://h", "h"}, {"edge", "https://h:1", "h:1"}, {"", "https://h:1", "h"},
	} {
		if err := Create(dir, c.name, []string{c.endpoint}, []string{c.host}); err == nil {
			t.Errorf("made %+v", c)
		}
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) > 0 {
		t.Errorf("left %v, %v", entries, err)
	}
	must(t, os.Mkdir(dir, 0o700)) // an empty directory is taken, and no link to one
	link := filepath.Join(parent, "link")
	must(t, os.Symlink(dir, link))
	if err := Create(link, "edge", []string{"https://192.0.2.1:2379"}, nil); err == nil {
		t.Error("made in the place of a link")
	}
	must(t, os.Remove(link))
	must(t, Create(dir, "edge", []string{"https://192.0.2.1:2379"}, []string{"etcd.example"}))
	before, err := os.ReadFile(filepath.Join(dir, caKeyFile))
	must(t, err)
	if err := Create(dir, "edge", []string{"https://192.0.2.1:2379"}, nil); err == nil || !strings.Contains(err.Error(), "has files already") {
		t.Errorf("made over another one: %v", err)
	}
	if after, err := os.ReadFile(filepath.Join(dir, caKeyFile)); err != nil || string(after) != string(before) {
		t.Error("the authority's key was overwritten")
	}
	a, err := Open(dir)
	must(t, err)
	files, err := a.RenewMember([]string{"192.0.2.4"})
	must(t, err)
	member := parse(t, files.Cert)
	for _, host := range []string{"192.0.2.1", "192.0.2.4", "etcd.example", "localhost"} {
		must(t, member.VerifyHostname(host))
	}
	pool := x509.NewCertPool()
	pool.AddCert(parse(t, files.CA))
	if _, err := parse(t, FilesIn(dir, RootFile).Cert).Verify(x509.VerifyOptions{Roots: pool}); err == nil {
		t.Error("the certificate of a client is one for a server")
	}
}

func parse(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	block, _ := pem.Decode(text)
	c, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	return c
}

// bedOf makes a cluster in dir, and runs its etcd.
func bedOf(t *testing.T, dir string) *clusterbed.Bed {
	t.Helper()
	made := filepath.Join(t.TempDir(), "made")
	must(t, Create(made, "edge", []string{"https://127.0.0.1:1"}, nil))
	files := FilesIn(made, MemberFile)
	bed := clusterbed.New(t, clusterbed.Options{Configure: func(c *embed.Config) {
		c.ClientTLSInfo = transport.TLSInfo{CertFile: files.Cert, KeyFile: files.Key, TrustedCAFile: files.CA, ClientCertAuth: true}
	}})
	// Its address is known from now on.
	a, err := Open(made)
	must(t, err)
	must(t, a.writeTable(made, RootFile, bed.Endpoints(), "", "test"))
	must(t, os.CopyFS(dir, os.DirFS(made)))
	for _, key := range []string{caKeyFile, RootFile + keySuffix, MemberFile + keySuffix} {
		must(t, os.Chmod(filepath.Join(dir, key), 0o600))
	}
	return bed
}

// login returns a client with the files that were issued, as their owner has them.
func login(t *testing.T, dir string) *clientv3.Client {
	t.Helper()
	table, err := config.ReadCluster(filepath.Join(dir, TableFile))
	must(t, err)
	c, err := etcd.Connect(table)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
