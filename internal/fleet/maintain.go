// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"culvert/internal/cluster"
)

// Maintain has a node withdraw, and waits until it may be stopped. If ctx ends, the node goes on withdrawing.
func (f *Fleet) Maintain(ctx context.Context, node, comment string, force bool, say Teller) error {
	nodes, states, stop, err := f.following(ctx)
	if err != nil {
		return err
	}
	defer stop()
	state, there := states[node]
	if !there {
		return fmt.Errorf("node %s is not there: there is %s", node, orNone(states.Names(), "no node"))
	}
	if err := leaves(node, states); err != nil && !force {
		return err
	}
	m := cluster.Maintain{At: time.Now().UTC(), By: f.by, Comment: comment, Announced: state.Announced}
	if state.Maintain != "" { // what it announced, the first one knows who asked
		var before cluster.Maintain
		if _, err := f.get(ctx, f.keys.Maintain(node), &before); err != nil && !isDamaged(err) {
			return err
		}
		m.Announced = before.Announced
	}
	if err := f.put(ctx, f.keys.Maintain(node), m); err != nil {
		return err
	}
	f.audit(ctx, "maintain", node, nil)
	begun, told := time.Now(), false
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		states, unseen := nodes.Now()
		state, there = states[node]
		switch {
		case unseen != nil:
			say.Live("%s: waiting for etcd: %v", node, unseen)
		case !there:
			return fmt.Errorf("%s is not there any more: it has ended, or cannot reach etcd; 'culvert fleet resume %s' ends its maintenance", node, node)
		case state.Maintain == cluster.MaintainNothing:
			say.Line("%s is in maintenance: nothing is announced by this node, so nothing moves away; %s, and they end when it is stopped; "+
				"'culvert fleet resume %s' ends the maintenance", node, comes(state), node)
			return nil
		case state.Maintain == cluster.MaintainSafe:
			say.Line("%s is safe to stop, after %s; 'culvert fleet resume %s' has it announce again", node, time.Since(begun).Round(100*time.Millisecond), node)
			return nil
		case state.Maintain == cluster.MaintainWithdrawing:
			if !told {
				say.Line("%s withdraws: it waits until no new flows come", node)
				told = true
			}
			say.Live("%s: %s, %s", node, announces(state), comes(state))
		default:
			say.Live("%s has not begun to withdraw", node)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted: %s goes on withdrawing; 'culvert fleet maintain %s' waits for it again, 'culvert fleet resume %s' ends it", node, node, node)
		case <-nodes.Changed():
		case <-tick.C:
		}
	}
}

// leaves refuses to take a node out of service in whose place no other one is. One that is in maintenance already is no question any more.
func leaves(node string, states States) error {
	if states[node].Maintain != "" {
		return nil
	}
	if alone := onlyBy(node, states); len(alone) > 0 {
		return fmt.Errorf("no other node announces %s: clients would lose it; --force withdraws it all the same", strings.Join(alone, ", "))
	}
	for _, role := range states[node].Roles {
		others := states.In(cluster.Scope{Kind: cluster.ScopeRole, Name: role})
		if !slices.ContainsFunc(others, func(name string) bool { return name != node && states[name].Maintain == "" }) {
			return fmt.Errorf("no other node with the role %s is in service: nothing takes the place of %s; --force takes it out of service all the same", role, node)
		}
	}
	return nil
}

// onlyBy returns the addresses that a node announces and no other one that is not in maintenance.
func onlyBy(node string, states States) (alone []string) {
	for _, a := range states[node].Announced {
		other := false
		for name, s := range states {
			other = other || name != node && s.Maintain == "" && slices.Contains(s.Announced, a)
		}
		if !other {
			alone = append(alone, a)
		}
	}
	return alone
}

func announces(s cluster.State) string {
	if len(s.Announced) == 0 {
		return "announces nothing"
	}
	return "still announces " + some(s.Announced)
}

func comes(s cluster.State) string {
	var rx uint64
	for _, i := range s.Interfaces {
		rx += i.RX
	}
	return fmt.Sprintf("%d packets a second come", rx)
}
