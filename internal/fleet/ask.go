// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
	"culvert/internal/show/usage"
)

// askTime is how long nodes have for an answer.
const askTime = 5 * time.Second

// Answers are what nodes have said to a question.
type Answers struct {
	Answers []cluster.Answer `json:"answers"`
	// Silent are the nodes that are there and have not answered in time.
	Silent []string `json:"silent,omitempty"`
}

// ask asks the nodes of a scope that are there, and waits until all have answered, at most within.
func (f *Fleet) ask(ctx context.Context, q cluster.Ask, within time.Duration) (*Answers, error) {
	states, err := f.States(ctx)
	if err != nil {
		return nil, err
	}
	q.ID = newID()
	text, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	waiting := states.In(q.Scope)
	if len(waiting) == 0 {
		return nil, fmt.Errorf("nobody of %s is there that could be asked: there is %s", q.Scope, orNone(states.Names(), "no node"))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var lease clientv3.LeaseID
	var at int64
	err = f.call(ctx, "asking nodes", func(ctx context.Context) error {
		g, err := f.etcd.Grant(ctx, int64(within/time.Second)+10)
		if err != nil {
			return err
		}
		lease = g.ID
		r, err := f.etcd.Put(ctx, f.keys.Ask(q.Kind, q.ID), string(text), clientv3.WithLease(lease))
		if err == nil {
			at = r.Header.Revision
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	defer func() { _, _ = f.etcd.Revoke(context.WithoutCancel(ctx), lease) }()
	a := &Answers{Answers: []cluster.Answer{}}
	end := time.After(within)
	watch := f.etcd.Watch(clientv3.WithRequireLeader(ctx), f.keys.Answers(), clientv3.WithPrefix(), clientv3.WithRev(at+1), clientv3.WithFilterDelete())
	for len(waiting) > 0 {
		select {
		case r, ok := <-watch:
			err := r.Err()
			if err == nil && !ok {
				err = errors.New("the watch has ended")
			}
			if err != nil {
				return nil, fmt.Errorf("asking nodes: the answers cannot be read: %w", plain(err))
			}
			for _, e := range r.Events {
				node, id, _ := strings.Cut(string(e.Kv.Key[len(f.keys.Answers()):]), "/")
				n := slices.Index(waiting, node)
				if id != q.ID || n < 0 {
					continue
				}
				waiting = slices.Delete(waiting, n, n+1)
				answer := cluster.Answer{Node: node}
				if err := decode(e.Kv.Value, &answer); err != nil {
					answer.Errors = []string{err.Error()}
				}
				answer.Node = node
				a.Answers = append(a.Answers, answer)
			}
			continue
		case <-end:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		break
	}
	a.Silent = waiting
	slices.SortFunc(a.Answers, func(x, y cluster.Answer) int { return strings.Compare(x.Node, y.Node) })
	return a, nil
}

// CheckWhere refuses what is no address, VIP or flow. A VIP's protocol may be left out.
func CheckWhere(words []string) error {
	if len(words) == 2 {
		return usage.Errorf("a flow needs a protocol behind source and destination: tcp or udp")
	}
	if len(words) == 3 {
		var ends [2]netip.AddrPort
		for n, w := range words[:2] {
			var err error
			if ends[n], err = netip.ParseAddrPort(w); err != nil {
				return usage.Errorf("%q is no address with a port, as 198.51.100.7:40000 or [2001:db8::7]:40000", w)
			}
		}
		if ends[0].Addr().Is4() != ends[1].Addr().Is4() {
			return usage.Errorf("%s does not send to %s: give addresses of one family", ends[0], ends[1])
		}
		if words[2] != "tcp" && words[2] != "udp" {
			return usage.Errorf("%q is no protocol: write tcp or udp", words[2])
		}
		return nil
	}
	name, _, _ := strings.Cut(words[0], "/")
	_, err := netip.ParseAddr(name)
	if _, portErr := netip.ParseAddrPort(name); err != nil && portErr != nil {
		return usage.Errorf("%q is no address, and no VIP: write it as 192.0.2.1, or 192.0.2.1:80/tcp", words[0])
	}
	return nil
}

// Where asks all nodes of a scope what they do with an address, VIP or flow.
func (f *Fleet) Where(ctx context.Context, words []string, scope cluster.Scope) (*Answers, error) {
	return f.ask(ctx, cluster.Ask{Kind: cluster.AskWhere, Scope: scope, Where: strings.Join(words, " ")}, askTime)
}

// Lines returns answers for people. Nodes that answer the same are in one line.
func (a *Answers) Lines() []string {
	var order []string
	nodes := make(map[string][]string)
	for _, answer := range a.Answers {
		key := strings.Join(answer.Lines, "\n  ")
		if len(answer.Errors) > 0 {
			key = "cannot say: " + strings.Join(answer.Errors, "; ")
		}
		if key == "" {
			key = "nothing"
		}
		if nodes[key] == nil {
			order = append(order, key)
		}
		nodes[key] = append(nodes[key], answer.Node)
	}
	var lines []string
	for _, key := range order {
		lines = append(lines, some(nodes[key])+":")
		for _, l := range strings.Split(key, "\n  ") {
			lines = append(lines, "  "+l)
		}
	}
	if len(a.Silent) > 0 {
		lines = append(lines, "no answer from "+some(a.Silent))
	}
	return lines
}
