// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"culvert/internal/cluster"
	"culvert/internal/cluster/clusterbed"
)

var keys = cluster.KeysOf("edge")

// TestAccess lets a node, a reader and a writer in, tries what each may not do, and revokes them.
func TestAccess(t *testing.T) {
	a := authority(t, "edge")
	member, err := a.Issue(a.Dir, "member", MemberName, []string{"127.0.0.1"})
	must(t, err)
	bed := clusterbed.New(t, clusterbed.Options{Configure: func(c *embed.Config) {
		c.ClientTLSInfo = transport.TLSInfo{
			CertFile: member.Cert, KeyFile: member.Key, TrustedCAFile: member.CA, ClientCertAuth: true,
		}
	}})
	client := func(a *Authority, user string) *clientv3.Client {
		files, err := a.Issue(t.TempDir(), "own", user, nil)
		must(t, err)
		tls, err := ClientTLS(files)
		must(t, err)
		c, err := clientv3.New(clientv3.Config{Endpoints: bed.Endpoints(), TLS: tls, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	root := client(a, Root)
	must(t, Enable(ctx, root, keys))
	must(t, Enable(ctx, root, keys)) // once more changes nothing
	allow := func(kind, name string) User {
		u := NewUser(kind, name)
		must(t, Allow(ctx, root, keys, u))
		return u
	}
	n1, w := allow(KindNode, "n1"), allow(KindWriter, "w")
	reader, writer, node := client(a, allow(KindReader, "r").String()), client(a, w.String()), client(a, n1.String())
	allow(KindNode, "n2")

	type try struct {
		who     string
		c       *clientv3.Client
		key     string
		write   bool
		allowed bool
	}
	for _, try := range []try{
		{"reader", reader, keys.Current(), false, true},
		{"reader", reader, keys.Current(), true, false},
		{"reader", reader, keys.Ask(cluster.AskWhere, "1"), true, true},
		{"reader", reader, keys.Ask(cluster.AskCheck, "1"), true, false},
		{"reader", reader, keys.Asks(), true, false},
		{"writer", writer, keys.Ask(cluster.AskCheck, "1"), true, true},
		{"reader", reader, "/culvert/other/current", false, false},
		{"writer", writer, keys.Current(), true, true},
		{"writer", writer, "/culvert/other/current", true, false},
		{"node", node, keys.Current(), false, true},
		{"node", node, keys.Current(), true, false},
		{"node", node, keys.Node("n1"), true, true},
		{"node", node, keys.Node("n2"), true, false},
		{"node", node, keys.Node("n11"), true, false},
		{"node", node, keys.Answer("n1", "1"), true, true},
		{"node", node, keys.Answer("n2", "1"), true, false},
		{"node", node, keys.Urgent("00000001"), true, false},
		{"unknown", client(a, "writer:w:00000000"), keys.Current(), false, false},
		{"member", client(a, MemberName), keys.Current(), false, false},
	} {
		var err error
		if try.write {
			_, err = try.c.Put(ctx, try.key, "v")
		} else {
			_, err = try.c.Get(ctx, try.key)
		}
		if try.allowed != (err == nil) {
			t.Errorf("%s, write %v of %s: %v, to be allowed: %v", try.who, try.write, try.key, err, try.allowed)
		}
	}
	if _, err := List(ctx, writer, keys); err == nil {
		t.Error("a writer sees the users")
	}
	grants, err := List(ctx, root, keys)
	must(t, err)
	n := slices.IndexFunc(grants, func(g Grant) bool { return g.User == n1 })
	if n < 0 || !slices.Contains(grants[n].Writes, keys.Node("n1")) || slices.Contains(grants[n].Writes, keys.Prefix()+"*") {
		t.Errorf("users %+v", grants)
	}

	watched := node.Watch(ctx, keys.Current(), clientv3.WithCreatedNotify())
	if r := <-watched; r.Err() != nil {
		t.Fatal(r.Err())
	}
	if there, err := Revoke(ctx, root, n1); err != nil || !there {
		t.Fatal(there, err)
	}
	// docs/fleet.md says what a certificate that was revoked still sees.
	_, err = root.Put(ctx, keys.Current(), "v")
	must(t, err)
	if r := <-watched; r.Err() != nil || len(r.Events) != 1 {
		t.Errorf("a watch from before: %v, %d events", r.Err(), len(r.Events))
	}
	for event := range node.Watch(ctx, keys.Current()) {
		if len(event.Events) > 0 || event.Err() == nil {
			t.Errorf("a new watch of a user that was revoked: %+v", event)
		}
	}
	for key, value := range map[string]string{keys.Known(): `{"n1":"2026-01-02T03:04:05Z","n2":"2026-01-02T03:04:05Z"}`, keys.Maintain("n1"): "{}"} {
		_, err = root.Put(ctx, key, value)
		must(t, err)
	}
	must(t, Forget(ctx, root, keys, "n1"))
	get := func(c *clientv3.Client, key string) int {
		r, err := c.Get(ctx, key)
		must(t, err)
		return len(r.Kvs)
	}
	if r, err := root.Get(ctx, keys.Known()); err != nil || string(r.Kvs[0].Value) != `{"n2":"2026-01-02T03:04:05Z"}` || get(root, keys.Maintain("n1")) != 0 {
		t.Errorf("the node is still missed, or in maintenance: %v, error %v", r, err)
	}
	if get(root, keys.Node("n1")) != 0 {
		t.Error("the state of a node that was revoked is still there")
	}
	if there, err := Revoke(ctx, root, n1); err != nil || there {
		t.Errorf("revoked twice: %v %v", there, err)
	}
	again := client(a, allow(KindNode, "n1").String())
	get(again, keys.Current())
	if _, err := node.Get(ctx, keys.Current()); !refused(err) {
		t.Errorf("a certificate that was revoked gets %v, after its node has got another one", err)
	}

	// The certificate of another cluster has the right name and the wrong authority.
	short, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	other, err := func() (*clientv3.Client, error) {
		files, err := authority(t, "other").Issue(t.TempDir(), "own", Root, nil)
		must(t, err)
		files.CA = member.CA
		tls, err := ClientTLS(files)
		must(t, err)
		return clientv3.New(clientv3.Config{Endpoints: bed.Endpoints(), TLS: tls, Logger: zap.NewNop()})
	}()
	must(t, err)
	defer other.Close()
	if _, err := other.Get(short, keys.Current()); err == nil {
		t.Error("etcd takes the certificate of another cluster")
	}
}

// refused tells whether etcd does not know the user any more.
func refused(err error) bool {
	return errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserNotFound) || errors.Is(err, rpctypes.ErrAuthFailed)
}

// TestInit refuses names and directories that cannot be, and opens what it has made.
func TestInit(t *testing.T) {
	a := authority(t, "edge")
	if _, err := Init(a.Dir, "edge"); err == nil {
		t.Error("an authority was made over another one")
	}
	again, err := Open(a.Dir)
	must(t, err)
	if again.Cluster != "edge" || !again.cert.Equal(a.cert) {
		t.Errorf("opened %+v", again)
	}
	if _, err := Init(t.TempDir()+"/x", "a/b"); err == nil {
		t.Error("a cluster's name has a slash")
	}
	if _, err := Open(t.TempDir()); err == nil {
		t.Error("an empty directory has an authority")
	}
}

func authority(t *testing.T, name string) *Authority {
	t.Helper()
	a, err := Init(t.TempDir(), name)
	must(t, err)
	return a
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
