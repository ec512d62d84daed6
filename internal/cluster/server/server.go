// SPDX-License-Identifier: Apache-2.0

// Package server runs a member of the etcd of a cluster within culvert, for small fleets and labs.
package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"google.golang.org/grpc"

	"culvert/internal/cluster"
	"culvert/internal/cluster/access"
	"culvert/internal/host/systemd"
	"culvert/internal/host/trust"
)

// DefaultData is where a member keeps its database.
const DefaultData = "/var/lib/culvert/etcd"

// DefaultListen is where a member listens for clients: nodes and operators.
const DefaultListen = ":2379"

// lonePeers is where a member without others listens for them.
const lonePeers = "https://127.0.0.1:2380"

// Options say which member of which cluster to run.
type Options struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Name is that of the member.
	Name string
	// Members are all of them, with this one. Without any, this one is alone.
	Members []Member
	// Join tells that the others run already, and have been told of this one.
	Join bool
	// Listen is the address for clients, and Advertise the URL by which they reach it.
	Listen, Advertise string
	// Data is the directory of the database.
	Data string
	// Files are those of the certificate of members.
	Files access.Files
	// Log takes what is worth a look.
	Log *slog.Logger
	// Ready is called when the member serves. It may be nil.
	Ready func()

	// noSync is for tests on slow disks: the machine does not crash within one.
	noSync bool
	// asking is called before etcd is made to ask for users, in tests.
	asking func()
}

// gate keeps clients out until etcd asks who they are. Otherwise nodes with certificates of before would find an empty etcd, where the
// data was lost, and everybody could write.
type gate struct{ open, ended chan struct{} }

// wait is called by etcd when it is ready, before it serves clients.
func (g *gate) wait(clients *grpc.Server) {
	select {
	case <-g.open:
	case <-g.ended:
		clients.Stop()
	}
}

// Member is a member of etcd.
type Member struct {
	Name string
	// URL is where the others reach it.
	URL string
}

// ParseMember reads NAME=https://ADDRESS:PORT.
func ParseMember(text string) (Member, error) {
	name, at, found := strings.Cut(text, "=")
	u, err := url.Parse(at)
	if !found || err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" || u.Path != "" {
		return Member{}, fmt.Errorf("member %q: write it as NAME=https://ADDRESS:PORT, with the port for the other members", text)
	}
	if err := cluster.CheckName(name); err != nil {
		return Member{}, fmt.Errorf("member %q: %w", text, err)
	}
	return Member{name, at}, nil
}

// slowStart is after how long a member that does not serve yet says why: it may be the first of several to start.
const slowStart = 10 * time.Second

// Serve runs the member until ctx ends, and leaves its data for the next start.
func Serve(ctx context.Context, o Options) (err error) {
	var ended atomic.Bool
	g := &gate{make(chan struct{}), make(chan struct{})}
	c, err := o.config(&ended, g)
	if err != nil {
		return err
	}
	if err := o.prepare(); err != nil {
		return err
	}
	lock, err := trust.TakeLock(filepath.Join(o.Data, "lock"))
	if errors.Is(err, trust.ErrLocked) {
		return fmt.Errorf("%s is the database of a member that runs: %s", o.Data, trust.HolderName(filepath.Join(o.Data, "lock")))
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	member, err := embed.StartEtcd(c)
	if err != nil {
		return fmt.Errorf("starting member %s of etcd: %w", o.Name, plain(err))
	}
	err = o.serve(ctx, member, g)
	ended.Store(true)
	close(g.ended)
	member.Close()
	return err
}

// serve waits until the member serves, has it ask for users, and then for its end.
func (o *Options) serve(ctx context.Context, member *embed.Etcd, g *gate) error {
	unit := systemd.New()
	slow := time.NewTimer(slowStart)
	defer slow.Stop()
	for ready := member.Server.ReadyNotify(); ready != nil; {
		select {
		case <-ready:
			ready = nil
		case <-slow.C:
			o.Log.Warn("etcd does not serve yet: most of its members have to run and reach each other", "member", o.Name, "members", len(o.Members))
			unit.Status("waits for other members")
		case <-ctx.Done():
			return nil
		case err := <-member.Err():
			return fmt.Errorf("member %s of etcd: %w", o.Name, plain(err))
		}
	}
	if asks, err := o.protect(ctx, member); err != nil || !asks {
		return err
	}
	close(g.open)
	o.Log.Info("etcd serves", "cluster", o.Cluster, "member", o.Name, "clients", o.Listen, "data", o.Data)
	unit.Status("serves cluster " + o.Cluster)
	unit.Ready()
	if o.Ready != nil {
		o.Ready()
	}
	look := time.NewTicker(24 * time.Hour)
	defer look.Stop()
	for {
		o.warnExpiry()
		select {
		case <-ctx.Done():
			unit.Stopping()
			return nil
		case err := <-member.Err():
			return fmt.Errorf("member %s of etcd: %w", o.Name, plain(err))
		case <-look.C:
		}
	}
}

// protect has etcd ask who somebody is, at the first start of the first member. It returns false if ctx ends before.
func (o *Options) protect(ctx context.Context, member *embed.Etcd) (bool, error) {
	if o.asking != nil {
		o.asking()
	}
	inside := v3client.New(member.Server)
	defer inside.Close()
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		if member.Server.AuthStore().IsAuthEnabled() {
			return true, nil
		}
		err := access.Enable(ctx, inside, cluster.KeysOf(o.Cluster))
		switch {
		case ctx.Err() != nil:
			return false, nil //nolint:nilerr // the end was asked for
		case err != nil && !member.Server.AuthStore().IsAuthEnabled() && wait > time.Minute:
			return false, err
		}
		select { // members that start together may be in each other's way
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// warnExpiry says in time that the member's certificate ends.
func (o *Options) warnExpiry() {
	pair, err := access.Load(o.Files)
	if err != nil {
		o.Log.Error("the certificate of this member cannot be read: clients will be refused", "err", err)
		return
	}
	const soon = 30 * 24 * time.Hour
	if left := time.Until(pair.Leaf.NotAfter); left < soon {
		o.Log.Warn("the certificate of this member ends soon: culvert cluster issue member, and copy it to all members",
			"file", o.Files.Cert, "days", int(left.Hours()/24))
	}
}

// prepare makes the directory of the data, and looks at the files of the certificate.
func (o *Options) prepare() error {
	if _, err := access.Load(o.Files); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: copy ca.pem, member.pem, member-key.pem and the file cluster from where 'culvert cluster init' was run", err)
		}
		return err
	}
	if err := trust.SecretFile(o.Files.Key); err != nil {
		return err
	}
	if err := os.MkdirAll(o.Data, 0o700); err != nil {
		return fmt.Errorf("making the directory of the database: %w", err)
	}
	return trust.Dir(o.Data)
}

// plain says in plain words why a member does not run.
func plain(err error) error {
	var address *net.OpError
	text := err.Error()
	switch {
	case errors.As(err, &address) && strings.Contains(text, "address already in use"):
		return fmt.Errorf("%w: another process has this address; --listen and --member name others", err)
	case strings.Contains(text, "member count is unequal"), strings.Contains(text, "unmatched member"):
		return fmt.Errorf("%w: --member has to name the same members on all of them", err)
	case strings.Contains(text, "has already been bootstrapped"):
		return fmt.Errorf("%w: the others know a member of this name with data; remove and add it there (etcdctl member), then start with --join", err)
	}
	return err
}
