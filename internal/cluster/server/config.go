// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/features"

	"culvert/internal/cluster/access"
)

const (
	// quota bounds the database, in bytes. etcd refuses changes beyond it, and goes on with reads.
	quota = 4 << 30
	// history is how long etcd keeps what keys were before: 1,000 nodes write up to 400 KB of states a second. A watcher that has
	// been away for longer reads everything.
	history = "5m"
	// tick and election are in milliseconds. A leader that is gone is noticed after election.
	tick, election = 100, 1000
)

// config returns the configuration of etcd, which logs nothing once ended is set, and serves no
// clients before the gate is open.
func (o *Options) config(ended *atomic.Bool, g *gate) (*embed.Config, error) {
	members := o.Members
	if len(members) == 0 {
		members = []Member{{o.Name, lonePeers}}
	}
	own := ""
	var all []string
	seen := make(map[string]string)
	for _, m := range members {
		if m.Name == o.Name {
			own = m.URL
		}
		if seen[m.Name] != "" || seen[m.URL] != "" {
			return nil, fmt.Errorf("--member %s=%s: each member has a name and an address of its own", m.Name, m.URL)
		}
		seen[m.Name], seen[m.URL] = m.URL, m.Name
		all = append(all, m.Name+"="+m.URL)
	}
	if own == "" {
		return nil, fmt.Errorf("no --member names %s, which this one is: name all members, this one too, or give its name with --name", o.Name)
	}
	peers, err := url.Parse(own)
	if err != nil {
		return nil, err
	}
	listen, advertise, err := o.clientURLs(peers.Hostname())
	if err != nil {
		return nil, err
	}
	c := embed.NewConfig()
	c.Name, c.Dir = o.Name, o.Data
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*listen}, []url.URL{*advertise}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{*listenURL(peers)}, []url.URL{*peers}
	c.InitialCluster, c.InitialClusterToken = strings.Join(all, ","), "culvert-"+o.Cluster
	if o.Join {
		c.ClusterState = embed.ClusterStateFlagExisting
	}
	c.ClientTLSInfo, c.PeerTLSInfo = o.tls(), o.tls()
	// Certificates of clients have the same authority, and are no members.
	c.PeerTLSInfo.AllowedCNs = []string{access.MemberName}
	c.TlsMinVersion = "TLS1.3"
	// The gateway would ask in the name of the member's own certificate.
	c.EnableGRPCGateway = false
	c.QuotaBackendBytes = quota
	c.AutoCompactionMode, c.AutoCompactionRetention = embed.CompactorModePeriodic, history
	c.UnsafeNoFsync = o.noSync
	if err := checkpointLeases(c); err != nil {
		return nil, err
	}
	c.TickMs, c.ElectionMs = tick, election
	c.ServiceRegister = g.wait
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapTo(o.Log, ended))
	return c, nil
}

// checkpointLeases has members note what time leases have left, so that those of long urgent changes do not get their whole time again with
// another leader. etcd notes it every 5 minutes. Nodes end changes on time by their own clocks all the same.
func checkpointLeases(c *embed.Config) error {
	gates, ok := c.ServerFeatureGate.(interface{ SetFromMap(map[string]bool) error })
	if !ok {
		return errors.New("this etcd has no switch for the time that leases have left")
	}
	return gates.SetFromMap(map[string]bool{string(features.LeaseCheckpoint): true, string(features.LeaseCheckpointPersist): true})
}

// tls are the files of the member's certificate, which it shows clients and other members.
func (o *Options) tls() transport.TLSInfo {
	return transport.TLSInfo{
		CertFile: o.Files.Cert, KeyFile: o.Files.Key, TrustedCAFile: o.Files.CA, ClientCertAuth: true, MinVersion: tls.VersionTLS13,
	}
}

// clientURLs returns where the member listens for clients and what it tells them. host is the member's own address.
func (o *Options) clientURLs(host string) (listen, advertise *url.URL, err error) {
	at, port, err := net.SplitHostPort(o.Listen)
	if err != nil || port == "" {
		return nil, nil, fmt.Errorf("--listen %s: write it as ADDRESS:PORT, or :PORT for all addresses", o.Listen)
	}
	if at != "" && net.ParseIP(at) == nil {
		return nil, nil, fmt.Errorf("--listen %s: write an address of this machine, not a name", o.Listen)
	}
	if at == "" {
		at = "0.0.0.0" // Go listens on IPv6 too
	} else {
		host = at
	}
	listen = &url.URL{Scheme: "https", Host: net.JoinHostPort(at, port)}
	if o.Advertise == "" {
		return listen, &url.URL{Scheme: "https", Host: net.JoinHostPort(host, port)}, nil
	}
	advertise, err = url.Parse(o.Advertise)
	if err != nil || advertise.Scheme != "https" || advertise.Port() == "" {
		return nil, nil, errors.New("the URL for clients is written as https://ADDRESS:PORT")
	}
	return listen, advertise, nil
}

// listenURL returns where a member with this URL listens: on the address, or on all for a name, which may be that of an address of
// another machine that passes on to this one.
func listenURL(u *url.URL) *url.URL {
	if net.ParseIP(u.Hostname()) != nil {
		return u
	}
	return &url.URL{Scheme: u.Scheme, Host: net.JoinHostPort("0.0.0.0", u.Port())}
}
