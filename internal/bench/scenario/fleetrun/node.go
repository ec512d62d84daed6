// SPDX-License-Identifier: Apache-2.0

package fleetrun

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
	"culvert/internal/cluster/access"
	"culvert/internal/cluster/agent"
	"culvert/internal/cluster/recorder"
	"culvert/internal/cluster/sets"
)

// role is that of all nodes.
const role = "edge"

// node is a simulated node: a real agent, with connections and a certificate of its own, in front of a recorder.
type node struct {
	name  string
	bed   *bed
	files access.Files

	agent *agent.Agent
	plane *plane
	begun int // counts starts
	end   context.CancelFunc
	ended chan struct{}
}

// plane is a recorder whose interfaces carry something, and that notes which sets it has.
type plane struct {
	recorder.Recorder
	bed *bed

	fetching sync.Mutex

	mu   sync.Mutex
	sets map[string]bool // manifests
	has  map[string]bool // chunks
	read int             // bytes of manifests and chunks
}

// State implements agent.Plane.
func (p *plane) State(s *cluster.State) {
	p.Recorder.State(s)
	rate := uint64(1_000_000)
	if p.bed.busy.Load() {
		rate += rand.Uint64N(rate)
	}
	for _, name := range []string{"eth0", "eth1"} {
		s.Interfaces = append(s.Interfaces, cluster.InterfaceState{Name: name, RX: rate, Drop: rate / 100})
	}
	s.Stages = map[string]string{"filter": "", "lb": "", "route": ""}
	s.Announced = []string{"192.0.2.1", "192.0.2.2"}
}

// fetch reads the sets of a revision that the node does not have. Their content is the same for all nodes and is kept once. As with sets.For,
// a check and a revision do not read at the same time.
func (p *plane) fetch(ctx context.Context, c *clientv3.Client, r cluster.Revision) error {
	p.fetching.Lock()
	defer p.fetching.Unlock()
	for _, hash := range r.Sets {
		p.mu.Lock()
		known := p.sets[hash]
		p.mu.Unlock()
		if known {
			continue
		}
		read := 0
		has := func(chunk string) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.has[chunk]
		}
		m, manifest, err := sets.Read(ctx, c, p.bed.keys, hash, has, func(chunk string, deflated []byte) error {
			read += len(deflated)
			return p.bed.content.check(chunk, deflated)
		})
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.sets[hash] = true
		for _, chunk := range sets.All(m) {
			p.has[chunk] = true
		}
		p.read += read + len(manifest)
		p.mu.Unlock()
	}
	return nil
}

// taken returns how many bytes of sets the node has read since it was asked last.
func (p *plane) taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.read
	p.read = 0
	return n
}

// content has chunks once for all nodes.
type content struct {
	mu     sync.Mutex
	chunks map[string][]byte
}

func newContent() *content { return &content{chunks: make(map[string][]byte)} }

// check refuses a chunk that is not what its name says. Only the first node computes its hash: the others compare.
func (c *content) check(hash string, deflated []byte) error {
	c.mu.Lock()
	known := c.chunks[hash]
	c.mu.Unlock()
	if known != nil {
		if !bytes.Equal(known, deflated) {
			return fmt.Errorf("chunk %.12s is not the same for all nodes", hash)
		}
		return nil
	}
	if _, err := sets.Inflate(hash, deflated); err != nil {
		return err
	}
	c.mu.Lock()
	c.chunks[hash] = slices.Clone(deflated)
	c.mu.Unlock()
	return nil
}

// start starts the node as one that knows nothing.
func (n *node) start() {
	n.begun++
	n.plane = &plane{bed: n.bed, sets: make(map[string]bool), has: make(map[string]bool)}
	ctx, cancel := context.WithCancel(context.Background())
	n.end, n.ended = cancel, make(chan struct{})
	n.agent = agent.New(agent.Options{
		Cluster: clusterName, Node: n.name, Roles: []string{role}, Host: n.name, Version: "bench", Instance: fmt.Sprintf("%s-%d", n.name, n.begun),
		Dead:    func(string, string) bool { return true },
		Connect: n.connect, Close: true, Plane: n.plane, Fetch: n.plane.fetch, Log: slog.New(slog.DiscardHandler),
	})
	ended, a := n.ended, n.agent
	go func() { defer close(ended); a.Run(ctx) }()
}

func (n *node) connect() (*clientv3.Client, error) {
	config, err := n.tls()
	if err != nil {
		return nil, err
	}
	return n.bed.connect(config)
}

// stop ends the node as a process that dies: its state stays until it is started again, or its lease ends.
func (n *node) stop() {
	if n != nil && n.end != nil {
		n.end()
		<-n.ended
	}
}
