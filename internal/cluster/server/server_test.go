// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/features"
	"go.uber.org/zap"

	"culvert/internal/cluster"
	"culvert/internal/cluster/access"
	"culvert/internal/cluster/clusterbed"
	"culvert/internal/testbed"
)

// TestServe runs three members, which ask who somebody is from the start, ends one, and starts it again with its data.
func TestServe(t *testing.T) {
	b := newBed(t, 3)
	for n := range b.options {
		b.start(n)
	}
	for n := range b.options {
		b.wait(n)
	}
	root := b.client(access.Root)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if s, err := root.AuthStatus(ctx); err != nil || !s.Enabled {
		t.Fatalf("etcd asks for users: %+v, %v", s, err)
	}
	nobody := b.client("writer:nobody:00000000")
	if _, err := nobody.Get(ctx, b.keys.Current()); err == nil {
		t.Error("a user that nobody let in reads")
	}
	_, err := root.Put(ctx, b.keys.Current(), "{}")
	must(t, err)

	b.stop(1)
	_, err = root.Put(ctx, b.keys.Lock(), "held")
	must(t, err)
	b.start(1)
	b.wait(1)
	one := b.clientOf(access.Root, 1)
	r, err := one.Get(ctx, b.keys.Lock())
	if err != nil || len(r.Kvs) != 1 {
		t.Errorf("a member that was away knows %v, %v", r, err)
	}

	// A database has one member.
	twice := b.options[0]
	if err := Serve(ctx, twice); err == nil || !strings.Contains(err.Error(), "is the database of a member that runs") {
		t.Errorf("started twice: %v", err)
	}
	const refused = "user-name=writer:nobody:00000000"
	if log := b.log(); strings.Count(log, refused) == 0 || strings.Contains(log, "use of closed network connection") {
		t.Errorf("want %s and nothing of the end in the log:\n%s", refused, log)
	}
}

// TestNobodyBeforeUsers lets nobody in, not even root, before etcd asks for users. It ends before that once.
func TestNobodyBeforeUsers(t *testing.T) {
	b := newBed(t, 1)
	b.options[0].Members = []Member{{b.options[0].Name, "https://" + clusterbed.Free(t)}}
	held, on := make(chan struct{}), make(chan struct{})
	b.options[0].asking = func() {
		close(held)
		<-on
	}
	b.start(0)
	<-held
	root := b.client(access.Root)
	read := func(wait time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		_, err := root.Get(ctx, b.keys.Current())
		return err
	}
	if read(time.Second) == nil {
		t.Error("etcd answers before it asks for users")
	}
	close(on)
	b.wait(0)
	must(t, read(time.Minute))
	b.stop(0)

	// The end comes first.
	b.options[0].Data = filepath.Join(t.TempDir(), "etcd")
	held, on = make(chan struct{}), make(chan struct{})
	b.start(0)
	<-held
	b.running[0].end()
	close(on)
	b.stop(0)
}

// TestCertificates connects with certificates that open nothing: to the port for clients with that of another cluster, to the port
// for members with one of a client, and with an old version of TLS.
func TestCertificates(t *testing.T) {
	b := newBed(t, 1)
	b.options[0].Members = []Member{{b.options[0].Name, "https://" + clusterbed.Free(t)}}
	b.start(0)
	b.wait(0)
	peers := strings.TrimPrefix(b.options[0].Members[0].URL, "https://")
	own := b.tls(b.authority, access.Root)
	member := b.tls(b.authority, access.MemberName)
	other, err := access.Init(filepath.Join(t.TempDir(), "other"), "edge")
	must(t, err)
	foreign := b.tls(other, access.Root)
	foreign.RootCAs = own.RootCAs
	old := own.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	distrustful := b.tls(other, access.Root)
	for _, try := range []struct {
		what    string
		at      string
		tls     *tls.Config
		refused string // "" for none
	}{
		{"root at the port for clients", b.options[0].Listen, own, ""},
		{"a member at the port for members", peers, member, ""},
		{"root at the port for members", peers, own, "bad certificate"},
		{"another cluster's root", b.options[0].Listen, foreign, "unknown certificate authority"},
		{"TLS 1.2", b.options[0].Listen, old, "protocol version not supported"},
		{"a client of another cluster", b.options[0].Listen, distrustful, "signed by unknown authority"},
	} {
		err := shake(t, try.at, try.tls)
		if try.refused == "" && err != nil || try.refused != "" && (err == nil || !strings.Contains(err.Error(), try.refused)) {
			t.Errorf("%s: %v, want %q", try.what, err, try.refused)
		}
	}
}

// shake connects and asks for the version of etcd. A server says after the client's part whether it takes the certificate.
func shake(t *testing.T, at string, config *tls.Config) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", at)
	if err != nil {
		return err
	}
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	if _, err := c.Write([]byte("GET /version HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	return err
}

// TestRefused starts what cannot be.
func TestRefused(t *testing.T) {
	good := newBed(t, 1).options[0]
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	for want, change := range map[string]func(*Options){
		"names x":         func(o *Options) { o.Name, o.Members = "x", []Member{{"m0", "https://127.0.0.1:1"}} },
		"of its own":      func(o *Options) { o.Members = []Member{{o.Name, "https://127.0.0.1:1"}, {"y", "https://127.0.0.1:1"}} },
		"ADDRESS:PORT":    func(o *Options) { o.Listen = "127.0.0.1" },
		"not a name":      func(o *Options) { o.Listen = "localhost:2379" },
		"copy ca.pem":     func(o *Options) { o.Files = access.FilesIn(t.TempDir(), "member") },
		"another process": func(o *Options) { o.Listen = taken.Addr().String() },
	} {
		o := good
		o.Data = filepath.Join(t.TempDir(), "etcd")
		o.Members = []Member{{o.Name, "https://" + clusterbed.Free(t)}}
		change(&o)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := Serve(ctx, o); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("want an error with %q, got %v", want, err)
		}
		cancel()
	}
	for _, text := range []string{"", "a", "a=", "a=http://h:1", "a=https://h", "a=https://h:1/x", "a/b=https://h:1", "=https://h:1"} {
		if m, err := ParseMember(text); err == nil {
			t.Errorf("%q is %+v", text, m)
		}
	}
}

// bed has members in this process.
type bed struct {
	t         *testing.T
	authority *access.Authority
	keys      cluster.Keys
	options   []Options
	running   []*running
	out       *testbed.Output
}

type running struct {
	ready chan struct{}
	end   context.CancelFunc
	err   chan error
}

func (b *bed) log() string { return b.out.String() }

func newBed(t *testing.T, members int) *bed {
	t.Helper()
	a, err := access.Init(filepath.Join(t.TempDir(), "edge"), "edge")
	must(t, err)
	files, err := a.Issue(a.Dir, "member", access.MemberName, []string{"127.0.0.1"})
	must(t, err)
	b := &bed{t: t, authority: a, keys: cluster.KeysOf("edge"), out: new(testbed.Output), running: make([]*running, members)}
	var all []Member
	for n := range members {
		all = append(all, Member{fmt.Sprintf("m%d", n), "https://" + clusterbed.Free(t)})
	}
	for _, m := range all {
		b.options = append(b.options, Options{
			Cluster: "edge", Name: m.Name, Members: all, Listen: clusterbed.Free(t), Data: filepath.Join(t.TempDir(), "etcd"), Files: files,
			Log: slog.New(slog.NewTextHandler(b.out, nil)), noSync: true,
		})
	}
	t.Cleanup(func() {
		for n := range b.running {
			b.stop(n)
		}
	})
	return b
}

func (b *bed) start(n int) {
	ctx, end := context.WithCancel(context.WithoutCancel(b.t.Context()))
	r := &running{make(chan struct{}), end, make(chan error, 1)}
	o := b.options[n]
	o.Ready = func() { close(r.ready) }
	b.running[n] = r
	go func() { r.err <- Serve(ctx, o) }()
}

func (b *bed) wait(n int) {
	b.t.Helper()
	select {
	case <-b.running[n].ready:
	case err := <-b.running[n].err:
		b.running[n] = nil
		b.t.Fatalf("member %d has ended: %v\n%s", n, err, b.log())
	case <-time.After(time.Minute):
		b.t.Fatalf("member %d does not serve:\n%s", n, b.log())
	}
}

func (b *bed) stop(n int) {
	b.t.Helper()
	if r := b.running[n]; r != nil {
		b.running[n] = nil
		r.end()
		if err := <-r.err; err != nil {
			b.t.Errorf("member %d: %v", n, err)
		}
	}
}

func (b *bed) tls(a *access.Authority, user string) *tls.Config {
	b.t.Helper()
	files, err := a.Issue(b.t.TempDir(), "own", user, nil)
	must(b.t, err)
	c, err := access.ClientTLS(files)
	must(b.t, err)
	return c
}

func (b *bed) client(user string) *clientv3.Client {
	b.t.Helper()
	all := make([]int, len(b.options))
	for n := range all {
		all[n] = n
	}
	return b.clientOf(user, all...)
}

func (b *bed) clientOf(user string, members ...int) *clientv3.Client {
	b.t.Helper()
	var urls []string
	for _, n := range members {
		urls = append(urls, "https://"+b.options[n].Listen)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: urls, TLS: b.tls(b.authority, user), DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	must(b.t, err)
	b.t.Cleanup(func() { _ = c.Close() })
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestCheckpointsLeases wants members to note what time the leases of urgent changes have left, for the next leader.
func TestCheckpointsLeases(t *testing.T) {
	o := newBed(t, 1).options[0]
	c, err := o.config(new(atomic.Bool), &gate{})
	must(t, err)
	if !c.ServerFeatureGate.Enabled(features.LeaseCheckpoint) || !c.ServerFeatureGate.Enabled(features.LeaseCheckpointPersist) {
		t.Error("they do not")
	}
}
