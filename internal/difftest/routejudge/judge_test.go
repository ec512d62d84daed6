// SPDX-License-Identifier: Apache-2.0

package routejudge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// batchSize is how many packets are on the way at once. The kernel's queue takes 1000.
const batchSize = 100

// tally counts what was done with the packets of a kind.
type tally struct {
	packets                      int
	forwarded, answered, ignored int // by the kernel
	fast, passed, dropped        int // by the fast path
}

// judge sends the same packets through the kernel and a fast path, and compares what they do.
type judge struct {
	t          *testing.T
	kernel     *twin
	gen        *generator
	tallies    map[string]*tally
	complaints []complaint
	name       string // of the scenario
	// takes is the last flow for which the fast path must forward ordinary packets.
	takes flow
	// exempt tells which of these packets the fast path may leave to the kernel nevertheless. It may be nil.
	exempt func(*packet) bool
	// again runs the fast path once more for packets that it has passed. It may be nil.
	again    fastPath
	repeated int
	// probes says that the kernel's way depends on what it knows of neighbors: its first packet to one that it does not know, or has
	// forgotten, waits for an answer, and the next one goes another way.
	probes bool
	// asks says that the fast path asks the kernel about some packets. bpf_fib_lookup does not return an MTU that a route has
	// without a lock, so longer packets are left to the kernel.
	asks bool
	// explain adds text to a complaint about a packet. It may be nil.
	explain func(*packet) string
	// down are the ports by which no packets come in.
	down []int
	// counts has the number of complaints with the same words. complaints has only the first few of each.
	counts map[string]int
}

func newJudge(t *testing.T, kernel *twin, g *generator) *judge {
	return &judge{
		t: t, kernel: kernel, gen: g, takes: flowInner, tallies: make(map[string]*tally), counts: make(map[string]int),
	}
}

// sendToKernel sends a batch through the kernel and returns what it did with each packet, by id.
func (c *judge) sendToKernel(batch []*packet) map[uint16]*outcome {
	c.t.Helper()
	for _, p := range batch {
		c.kernel.wire.put(p.port, p.frame)
	}
	outcomes, strays := attribute(batch, c.kernel.wire.drain())
	for _, s := range strays {
		c.t.Fatalf("out of port %d came what nothing was sent for: %x", s.port, s.frame)
	}
	return outcomes
}

// try sends n packets of a kind through the kernel and the fast path.
func (c *judge) try(k kind, n int, fast fastPath) {
	c.t.Helper()
	for n > 0 {
		batch := c.gen.batch(k, min(n, batchSize))
		n -= len(batch)
		batch = slices.DeleteFunc(batch, func(p *packet) bool { return slices.Contains(c.down, p.port) })
		outcomes := c.sendToKernel(batch)
		for _, p := range batch {
			c.judgePacket(p, outcomes[p.id], fast(p, outcomes[p.id]))
		}
	}
}

// takesFlow returns the last flow for which the fast path must forward the packet.
func (c *judge) takesFlow(p *packet) flow {
	if c.exempt != nil && c.exempt(p) || c.asks && strings.HasSuffix(p.kind, "around the MTU") {
		return flowNone
	}
	return c.takes
}

// keptComplaints is how many complaints with the same words are shown.
const keptComplaints = 3

// judgePacket counts what was done with a packet and keeps a complaint if the fast path was wrong.
func (c *judge) judgePacket(p *packet, kernel *outcome, f fate) {
	n := c.tallies[p.kind]
	if n == nil {
		n = &tally{}
		c.tallies[p.kind] = n
	}
	n.packets++
	switch {
	case len(kernel.forwards) > 0:
		n.forwarded++
	case len(kernel.answers) > 0:
		n.answered++
	default:
		n.ignored++
	}
	switch f.action {
	case xdpPass:
		n.passed++
	case xdpDrop:
		n.dropped++
	default:
		n.fast++
	}
	what := verdict(p, kernel, f, c.takesFlow(p))
	for tries := 0; what == mustForward && c.again != nil && tries < 500 && c.counts[p.kind+": "+what] == 0; tries++ {
		// If the control plane gets no CPU time, the program asks the kernel, which is right but slow.
		time.Sleep(20 * time.Millisecond)
		f = c.again(p, kernel)
		what = verdict(p, kernel, f, c.takesFlow(p))
		c.repeated++
	}
	if what == unasked && c.probes {
		kernel = c.sendToKernel([]*packet{p})[p.id]
		what = verdict(p, kernel, f, c.takesFlow(p))
		c.repeated++
	}
	if what != "" {
		key := p.kind + ": " + what
		if c.counts[key]++; c.counts[key] <= keptComplaints {
			found := complaint{what: what, packet: p, kernel: kernel, fate: f}
			if c.explain != nil {
				found.more = c.explain(p)
			}
			c.complaints = append(c.complaints, found)
		}
	}
}

// all tries the given number of packets of each kind.
func (c *judge) all(each int, fast fastPath) {
	c.t.Helper()
	for _, k := range slices.Concat(kinds4, kinds6) {
		c.try(k, each, fast)
	}
}

// report fails the test if there are complaints.
func (c *judge) report() {
	c.t.Helper()
	for _, key := range sortedKeys(c.counts) {
		c.t.Errorf("%s: %d times %s", c.name, c.counts[key], key)
	}
	for _, complaint := range c.complaints {
		c.t.Log(complaint)
	}
	c.t.Log(c.name, c.repeated, "repeated", c.summary())
}

func (c *judge) summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-40s %7s  %7s %7s %7s  %7s %7s %7s\n", "", "packets", "forward", "answer", "ignore", "fast", "pass", "drop")
	var sum tally
	line := func(name string, n *tally) {
		fmt.Fprintf(&b, "%-40s %7d  %7d %7d %7d  %7d %7d %7d\n", name, n.packets, n.forwarded, n.answered, n.ignored,
			n.fast, n.passed, n.dropped)
	}
	for _, name := range sortedKeys(c.tallies) {
		n := c.tallies[name]
		line(name, n)
		sum.packets += n.packets
		sum.forwarded += n.forwarded
		sum.answered += n.answered
		sum.ignored += n.ignored
		sum.fast += n.fast
		sum.passed += n.passed
		sum.dropped += n.dropped
	}
	line("all", &sum)
	return b.String()
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
