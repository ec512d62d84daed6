// SPDX-License-Identifier: Apache-2.0

package fleetrun

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario"
	"culvert/internal/cluster"
	"culvert/internal/cluster/access"
	"culvert/internal/cluster/etcd"
	"culvert/internal/config"
	"culvert/internal/fleet"
)

const (
	// clusterName is that of the fleet's cluster, operator that of its writer.
	clusterName = "bench"
	operator    = "bench"
	memberCount = 3
	// atOnce bounds how many certificates are made at the same time.
	atOnce = 32
	// mostNodes bounds the number of nodes: beyond it ports and memory of a machine end.
	mostNodes = 5000
)

// bed is a fleet with its etcd, in a network namespace and a directory in memory that are gone when the process ends.
type bed struct {
	space    *load.Netns
	scratch  *peer.Scratch
	members  []*member
	root     *clientv3.Client
	http     *http.Client
	fleet    *fleet.Fleet
	keys     cluster.Keys
	nodes    []*node
	content  *content
	progress io.Writer
	traffic  traffic
	dialers  *dialers
	// busy has the rates of interfaces change with each state of a node.
	busy atomic.Bool
	// base is the memory of this process before there were nodes, in bytes.
	base uint64
}

// dir is where all files are.
func (b *bed) dir(parts ...string) string {
	return filepath.Join(append([]string{b.scratch.Path()}, parts...)...)
}

// newBed starts etcd, lets nodes in and starts them. The caller must call close, also after an error.
func newBed(ctx context.Context, nodes int, o scenario.Options) (b *bed, err error) {
	b = &bed{keys: cluster.KeysOf(clusterName), content: newContent(), progress: o.Progress}
	if b.scratch, err = peer.NewScratch(); err != nil {
		return b, err
	}
	if b.space, err = load.NewNetns(); err != nil {
		return b, err
	}
	if b.dialers, err = newDialers(b.space); err != nil {
		return b, err
	}
	fmt.Fprintf(b.progress, "starting etcd of %d members\n", memberCount)
	if err := access.Create(b.dir("cluster"), clusterName, endpoints(), nil); err != nil {
		return b, err
	}
	if err := b.startMembers(); err != nil {
		return b, err
	}
	root, err := access.ClientTLS(access.FilesIn(b.dir("cluster"), access.RootFile))
	if err != nil {
		return b, err
	}
	b.http = &http.Client{Transport: &http.Transport{
		TLSClientConfig: root, DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return b.dialers.dial(ctx, addr) },
	}}
	if b.root, err = b.connect(root); err != nil {
		return b, err
	}
	if err := b.serving(ctx); err != nil {
		return b, err
	}
	if err := b.admit(ctx, nodes); err != nil {
		return b, err
	}
	b.base = memory()
	fmt.Fprintf(b.progress, "starting %d nodes\n", nodes)
	for _, n := range b.nodes {
		n.start()
	}
	return b, b.await(ctx, "all nodes have reported", func(n *node) bool { return n.agent.View().Writes > 0 })
}

// close ends everything.
func (b *bed) close() error {
	var ending sync.WaitGroup
	for _, n := range b.nodes {
		ending.Go(n.stop)
	}
	ending.Wait()
	if b.fleet != nil {
		_ = b.fleet.Close()
	}
	if b.root != nil {
		_ = b.root.Close()
	}
	if b.http != nil {
		b.http.CloseIdleConnections()
	}
	b.dialers.end()
	var errs []error
	for _, m := range b.members {
		errs = append(errs, m.process.Stop(time.Millisecond)) // nobody needs its data again
	}
	if b.space != nil {
		errs = append(errs, b.space.Close())
	}
	return errors.Join(append(errs, b.scratch.Close())...)
}

// connect returns a client of etcd whose connections are in the namespace.
func (b *bed) connect(config *tls.Config) (*clientv3.Client, error) {
	return etcd.Dial(clientv3.Config{
		Endpoints: endpoints(), TLS: config, DialOptions: []grpc.DialOption{grpc.WithContextDialer(b.dialers.dial), grpc.WithStatsHandler(&b.traffic)},
	})
}

// admit makes the certificates of nodes and of the operator, and lets them in.
func (b *bed) admit(ctx context.Context, nodes int) error {
	authority, err := access.Open(b.dir("cluster"))
	if err != nil {
		return err
	}
	files, err := b.let(ctx, authority, access.KindWriter, operator)
	if err != nil {
		return err
	}
	config, err := access.ClientTLS(files)
	if err != nil {
		return err
	}
	client, err := b.connect(config)
	if err != nil {
		return err
	}
	b.fleet = fleet.New(client, clusterName, operator)
	b.nodes = make([]*node, nodes)
	track := scenario.NewSteps(b.progress, nodes)
	track.Begin("letting nodes in")
	begun := time.Now()
	var mu sync.Mutex
	err = parallel(ctx, nodes, func(ctx context.Context, i int) error {
		name := fmt.Sprintf("n%05d", i)
		files, err := b.let(ctx, authority, access.KindNode, name)
		if err != nil {
			return err
		}
		b.nodes[i] = &node{name: name, bed: b, files: files}
		mu.Lock()
		defer mu.Unlock()
		track.End("", "")
		track.Begin("letting nodes in")
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(b.progress, "%d nodes have certificates and users of their own, after %.1f s\n", nodes, time.Since(begun).Seconds())
	return nil
}

// let makes a certificate and a user. etcd may take longer for a user than it waits: then another one is made.
func (b *bed) let(ctx context.Context, a *access.Authority, kind, name string) (files access.Files, err error) {
	dir := b.dir("issued", kind+"-"+name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return files, err
	}
	const attempts = 5
	for range attempts {
		u := access.NewUser(kind, name)
		if files, err = a.Issue(dir, kind, u.String(), nil); err != nil {
			return files, err
		}
		if err = access.Allow(ctx, b.root, b.keys, u); err == nil || ctx.Err() != nil {
			break
		}
	}
	return files, err
}

// tls is how a node connects: its certificate is read for each connection.
func (n *node) tls() (*tls.Config, error) {
	return etcd.TLS(&config.ClusterTLS{CA: n.files.CA, Cert: n.files.Cert, Key: n.files.Key})
}

// parallel calls do for the numbers below n, some at the same time, until one fails.
func parallel(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var work sync.WaitGroup
	for range min(atOnce, n) {
		work.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range n {
		select {
		case next <- i:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	work.Wait()
	return context.Cause(ctx)
}

// patience bounds how long nodes have for anything. A machine that is busy with other things is no failure.
const patience = 10 * time.Minute

// await waits until a condition holds for all nodes, and for what it says names one for which it does not.
func (b *bed) await(ctx context.Context, what string, holds func(*node) bool) error {
	end := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	rest := b.nodes
	for {
		for len(rest) > 0 && holds(rest[0]) {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-end:
			return fmt.Errorf("%s: not so for %s after %v", what, rest[0].name, patience)
		}
		for _, m := range b.members {
			if m.process.Ended() {
				return fmt.Errorf("member %s of etcd has ended: %s", m.name, m.process.LastLine())
			}
		}
	}
}
