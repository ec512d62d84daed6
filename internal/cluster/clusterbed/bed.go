// SPDX-License-Identifier: Apache-2.0

// Package clusterbed runs a real etcd for tests: members on loopback, each behind a proxy that can cut and delay connections.
package clusterbed

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// Options say what an etcd is like.
type Options struct {
	// Members are how many there are: 1 without a number.
	Members int
	// Quota bounds the database of a member in bytes, 0 for etcd's own bound.
	Quota int64
	// Configure changes the configuration of a member before it starts, for TLS. It may be nil.
	Configure func(*embed.Config)
}

// Bed is an etcd.
type Bed struct {
	t       testing.TB
	options Options
	members []*Member
}

// Member is a member of an etcd.
type Member struct {
	bed          *Bed
	name, dir    string
	client, peer string // addresses
	etcd         *embed.Etcd
	proxy        *Proxy // of clients
	peers        *Proxy // of the other members
}

// New starts an etcd that ends with the test.
func New(t testing.TB, o Options) *Bed {
	t.Helper()
	b := &Bed{t: t, options: o}
	for n := range max(o.Members, 1) {
		m := &Member{bed: b, name: fmt.Sprintf("m%d", n), dir: t.TempDir(), client: Free(t), peer: Free(t)}
		m.proxy, m.peers = NewProxy(t, m.client), NewProxy(t, m.peer)
		b.members = append(b.members, m)
	}
	t.Cleanup(func() {
		for _, m := range b.members {
			m.Kill()
		}
	})
	for _, m := range b.members {
		m.begin()
	}
	for _, m := range b.members {
		m.wait()
	}
	return b
}

// Member returns a member, from 0.
func (b *Bed) Member(n int) *Member { return b.members[n] }

// Members returns all of them.
func (b *Bed) Members() []*Member { return b.members }

// Endpoints are the URLs of all members, through their proxies.
func (b *Bed) Endpoints() (urls []string) {
	for _, m := range b.members {
		urls = append(urls, m.Endpoint())
	}
	return urls
}

// Client returns a client of all members that goes past the proxies, for an etcd without TLS. It ends with the test.
func (b *Bed) Client() *clientv3.Client {
	b.t.Helper()
	var urls []string
	for _, m := range b.members {
		urls = append(urls, "http://"+m.client)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: urls, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Leader returns the member that leads. It waits until one does.
func (b *Bed) Leader() *Member {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, m := range b.members {
			if m.etcd != nil && m.etcd.Server.Leader() == m.etcd.Server.MemberID() {
				return m
			}
		}
	}
	b.t.Fatal("etcd has had no leader for a minute")
	return nil
}

// Endpoint is the URL of a member through its proxy.
func (m *Member) Endpoint() string { return m.scheme() + "://" + m.proxy.Addr() }

// Proxy is the one in front of a member, for clients.
func (m *Member) Proxy() *Proxy { return m.proxy }

// Peers is the proxy by which the other members reach a member.
func (m *Member) Peers() *Proxy { return m.peers }

// Etcd is the server of a member, nil while it is killed.
func (m *Member) Etcd() *embed.Etcd { return m.etcd }

// Kill ends a member, unless it was killed already.
func (m *Member) Kill() {
	if m.etcd != nil {
		m.etcd.Close()
		m.etcd = nil
	}
}

// Start starts a member again that was killed, with its data, and waits until it serves. The others have to make up a majority.
func (m *Member) Start() {
	m.bed.t.Helper()
	m.begin()
	m.wait()
}

// Begin starts a member again that was killed, with its data, and does not wait.
func (m *Member) Begin() {
	m.bed.t.Helper()
	m.begin()
}

func (m *Member) begin() {
	m.bed.t.Helper()
	e, err := embed.StartEtcd(m.config())
	if err != nil {
		m.bed.t.Fatalf("start member %s of etcd: %v", m.name, err)
	}
	m.etcd = e
}

func (m *Member) wait() {
	m.bed.t.Helper()
	select {
	case <-m.etcd.Server.ReadyNotify():
	case <-time.After(time.Minute):
		m.bed.t.Fatalf("member %s of etcd has not started in a minute", m.name)
	}
}

func (m *Member) config() *embed.Config {
	c := embed.NewConfig()
	c.Name, c.Dir = m.name, m.dir
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	c.UnsafeNoFsync = true // the machine does not crash within a test
	c.QuotaBackendBytes = m.bed.options.Quota
	c.TickMs, c.ElectionMs = 50, 500
	if m.bed.options.Configure != nil {
		m.bed.options.Configure(c)
	}
	client, peer := m.urls(m.client, m.proxy.Addr())
	c.ListenClientUrls, c.AdvertiseClientUrls = client, peer
	c.ListenPeerUrls = []url.URL{{Scheme: "http", Host: m.peer}}
	c.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: m.peers.Addr()}}
	var all []string
	for _, other := range m.bed.members {
		all = append(all, other.name+"=http://"+other.peers.Addr())
	}
	c.InitialCluster = strings.Join(all, ",")
	return c
}

// urls returns where a member listens for clients, and what it tells them.
func (m *Member) urls(listen, advertise string) (l, a []url.URL) {
	return []url.URL{{Scheme: m.scheme(), Host: listen}}, []url.URL{{Scheme: m.scheme(), Host: advertise}}
}

// scheme is https for an etcd with certificates.
func (m *Member) scheme() string {
	if m.bed.options.Configure != nil {
		c := embed.NewConfig()
		m.bed.options.Configure(c)
		if !c.ClientTLSInfo.Empty() {
			return "https"
		}
	}
	return "http"
}
