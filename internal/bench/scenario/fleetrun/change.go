// SPDX-License-Identifier: Apache-2.0

package fleetrun

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"time"

	"culvert/internal/cluster"
	"culvert/internal/cluster/lastgood"
	"culvert/internal/edit"
	"culvert/internal/fleet"
)

// everybody is what changes are for.
var everybody = cluster.Scope{Kind: cluster.ScopeAll}

// urgent measures how long it takes until an urgent rule is in force on each node, and until the operator knows.
func urgent(ctx context.Context, b *bed, r *rounds) error {
	return r.do(ctx, true, func(n int) (string, error) {
		expression := fmt.Sprintf("udp src port %d", 1000+n)
		rule := &edit.RuleAdd{Rule: fmt.Sprintf("bench-%d", n), Action: "drop", Expression: &expression}
		begun := time.Now()
		reach, err := b.fleet.Urgent(ctx, rule, everybody, 0, false)
		if err != nil {
			return "", err
		}
		told := time.Since(begun)
		if len(reach.Failed) > 0 {
			return "", reach.Err()
		}
		if err := b.await(ctx, "the urgent rule is in force", func(n *node) bool { return !n.plane.Since(reach.ID).IsZero() }); err != nil {
			return "", err
		}
		var all []time.Duration
		for _, n := range b.nodes {
			all = append(all, n.plane.Since(reach.ID).Sub(begun))
		}
		p50, p99, last := r.addTimes("in force", all)
		r.add("the operator knows", seconds, told.Seconds())
		r.add("nodes that told late", count, float64(len(reach.Missing)))
		if _, err := b.fleet.Undo(ctx, reach.ID); err != nil {
			return "", err
		}
		if err := b.await(ctx, "the urgent rule is gone", func(n *node) bool { return n.plane.Since(reach.ID).IsZero() }); err != nil {
			return "", err
		}
		return fmt.Sprintf("in force after %.2f s (p50), %.2f s (p99), %.2f s (last)", p50, p99, last), nil
	})
}

// document is one for all nodes, another one for each n.
func document(n int) string {
	return fmt.Sprintf("[[filter.rule]]\nname = \"ntp\"\naction = \"drop\"\nexpression = \"udp src port %d\"\n", 2000+n)
}

// longestWait is how long nodes have to be well after each step, unless rounds are short.
const longestWait = time.Second

// apply measures a revision that comes to nodes in the usual steps.
func apply(ctx context.Context, b *bed, r *rounds) error {
	wait := min(longestWait, r.each/5)
	r.note = fmt.Sprintf("canary 1, then 25 %% at a time, each step well for %v", wait)
	return r.do(ctx, true, func(n int) (string, error) {
		steps := fleet.Steps{Canary: 1, Step: "25%", Wait: wait, Within: patience}
		out, total, err := b.apply(ctx, document(n), "bench.toml", steps)
		if err != nil {
			return "", err
		}
		waits := time.Duration(out.steps()) * wait
		r.add("in all", seconds, total.Seconds())
		r.add("without the waits", seconds, (total - waits).Seconds())
		r.add("checked by nodes and written", seconds, out.written.Seconds())
		r.add("nodes that did not check in time", count, out.unchecked())
		return fmt.Sprintf("%.1f s", total.Seconds()), nil
	})
}

// apply brings a document to all nodes, and checks that all of them run it.
func (b *bed) apply(ctx context.Context, text, file string, steps fleet.Steps) (*told, time.Duration, error) {
	out := &told{begun: time.Now(), written: -1}
	err := b.fleet.Apply(ctx, fleet.Apply{
		Changes: []fleet.Change{{Scope: everybody, File: file, Text: text}}, Steps: steps,
	}, fleet.Teller{Out: out})
	if err != nil {
		return out, 0, err
	}
	total := time.Since(out.begun)
	return out, total, b.converged(ctx)
}

// converged waits until all nodes run what is current, and fails if one runs another content.
func (b *bed) converged(ctx context.Context) error {
	current, err := b.fleet.Current(ctx)
	if err != nil {
		return err
	}
	docs, err := b.fleet.Documents(ctx, current.Revision)
	if err != nil {
		return err
	}
	revision, err := b.fleet.Revision(ctx, current.Revision)
	if err != nil {
		return err
	}
	set := &lastgood.Set{Documents: []lastgood.Document{{Scope: everybody.String(), Text: []byte(docs[everybody.String()])}}}
	if err := b.await(ctx, fmt.Sprintf("revision %d runs", current.Revision), func(n *node) bool {
		return n.plane.Revision() == current.Revision
	}); err != nil {
		return err
	}
	for _, n := range b.nodes {
		ran, _ := n.plane.Runs()
		if got := ran[len(ran)-1].Digest; got != set.Digest() {
			return fmt.Errorf("node %s runs revision %d with the hash %s, which is not %s", n.name, current.Revision, got, set.Digest())
		}
		for _, hash := range revision.Sets {
			if !n.plane.holds(hash) {
				return fmt.Errorf("node %s runs revision %d without its set %.12s", n.name, current.Revision, hash)
			}
		}
	}
	return nil
}

// holds tells whether a node has a set.
func (p *plane) holds(set string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sets[set]
}

// healthy fails if a node refuses something or has lost etcd.
func (b *bed) healthy() error {
	for _, n := range b.nodes {
		v := n.agent.View()
		switch {
		case v.Refused != "":
			return fmt.Errorf("node %s refuses: %s", n.name, v.Refused)
		case len(v.UrgentFailed) > 0:
			return fmt.Errorf("node %s could not carry out urgent changes: %v", n.name, v.UrgentFailed)
		case v.Twin != "" || v.ReportProblem != "":
			return fmt.Errorf("node %s does not report: %s%s", n.name, v.ReportProblem, v.Twin)
		}
	}
	return nil
}

// told is what an operator was told.
type told struct {
	begun time.Time
	// written is when the revision was, which is after nodes have checked it.
	written time.Duration

	mu   sync.Mutex
	text bytes.Buffer
}

// Write takes a line.
func (t *told) Write(line []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.written < 0 && bytes.HasPrefix(line, []byte("revision ")) {
		t.written = time.Since(t.begun)
	}
	return t.text.Write(line)
}

var (
	stepsTold     = regexp.MustCompile(`nodes in ([0-9]+) steps?`)
	uncheckedTold = regexp.MustCompile(`(?m)^not checked by .* and ([0-9]+) others, which did not answer`)
)

// steps is how many steps there were.
func (t *told) steps() int { return t.number(stepsTold) }

// unchecked is how many nodes did not check the revision in time. The first eight are named, and the others counted.
func (t *told) unchecked() float64 {
	const named = 8
	if n := t.number(uncheckedTold); n > 0 {
		return float64(n + named)
	}
	return 0
}

func (t *told) number(line *regexp.Regexp) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := line.FindSubmatch(t.text.Bytes())
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(found[1])) // the expression has digits alone
	return n
}

// look measures what an operator waits for who looks at all nodes.
func look(ctx context.Context, b *bed, r *rounds) error {
	return r.do(ctx, true, func(int) (string, error) {
		begun := time.Now()
		status, err := b.fleet.Status(ctx)
		if err != nil {
			return "", err
		}
		lines := status.Lines()
		took := time.Since(begun)
		if len(status.Nodes) != len(b.nodes) || len(lines) < len(b.nodes) {
			return "", fmt.Errorf("fleet status has %d nodes in %d lines, of %d", len(status.Nodes), len(lines), len(b.nodes))
		}
		r.add("fleet status", seconds, took.Seconds())
		begun = time.Now()
		answers, err := b.fleet.Where(ctx, []string{"192.0.2.1"}, everybody)
		if err != nil {
			return "", err
		}
		r.add("fleet where", seconds, time.Since(begun).Seconds())
		r.add("nodes that answered late", count, float64(len(answers.Silent)))
		return fmt.Sprintf("status %.2f s", took.Seconds()), nil
	})
}

// everywhere are steps of all nodes at once.
var everywhere = fleet.Steps{Step: "100%", Within: patience}
