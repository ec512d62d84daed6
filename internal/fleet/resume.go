// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
)

// AnnounceWait is how long an operator waits at most until a node announces again what it announced before its maintenance.
const AnnounceWait = 10 * time.Second

// ResumeNode ends the maintenance of a node, and waits until it announces again what it announced before, at most AnnounceWait.
func (f *Fleet) ResumeNode(ctx context.Context, node string, say Teller) error {
	nodes, states, stop, err := f.following(ctx)
	if err != nil {
		return err
	}
	defer stop()
	var was *mvccpb.KeyValue
	if err := f.call(ctx, "ending the maintenance", func(ctx context.Context) error {
		r, err := f.etcd.Delete(ctx, f.keys.Maintain(node), clientv3.WithPrevKV())
		if err == nil && len(r.PrevKvs) > 0 {
			was = r.PrevKvs[0]
		}
		return err
	}); err != nil {
		return err
	}
	if was == nil {
		return fmt.Errorf("%s is in no maintenance", node)
	}
	f.audit(ctx, "resume", node, nil)
	m, damaged := cluster.ParseMaintain(was.Value)
	if damaged != nil && states[node].Maintain == "" {
		say.Line("the key maintain/%s is taken away; it was no maintenance, and no node obeyed it", node)
		return nil
	}
	return f.inService(ctx, nodes, node, m.Announced, say)
}

// inService waits until a node is in no maintenance and announces what it did before.
func (f *Fleet) inService(ctx context.Context, nodes *Nodes, node string, announced []string, say Teller) error {
	end, heard := time.After(UrgentWait), false
	for {
		states, _ := nodes.Now()
		state, there := states[node]
		missing := slices.DeleteFunc(slices.Clone(announced), func(a string) bool { return slices.Contains(state.Announced, a) })
		switch {
		case !there:
			say.Line("%s is not there: its maintenance is over once it is back", node)
			return nil
		case state.Maintain == "" && len(missing) == 0 && len(announced) > 0:
			say.Line("%s is back in service, and announces %s", node, strings.Join(announced, " "))
			return nil
		case state.Maintain == "" && len(missing) == 0:
			say.Line("%s is back in service", node)
			return nil
		case state.Maintain == "":
			if !heard {
				heard, end = true, time.After(f.announceWait)
			}
			say.Live("%s: its maintenance is over, and it does not announce %s yet", node, some(missing))
		}
		select {
		case <-ctx.Done():
			return errors.New("interrupted: its maintenance has ended in etcd")
		case <-end:
			if heard {
				return fmt.Errorf("the maintenance of %s is over, and after %s it does not announce %s, as it did before: see 'culvert lb show' there, "+
					"and 'culvert fleet status'", node, f.announceWait, some(missing))
			}
			return fmt.Errorf("%s has not answered within %s: it is back in service once it can reach etcd", node, UrgentWait)
		case <-nodes.Changed():
		}
	}
}
