// SPDX-License-Identifier: Apache-2.0

//go:build long

package agent_test

import (
	"testing"

	"culvert/internal/cluster/clusterbed"
)

// TestNoQuorum takes two of three members away. Nodes go on, and converge afterwards.
func TestNoQuorum(t *testing.T) {
	t.Parallel()
	etcd := clusterbed.New(t, clusterbed.Options{Members: 3})
	f := newFleet(t, newBed(t, etcd.Endpoints()...), 4, func(int) []string { return etcd.Endpoints() })
	f.converged("the first", f.next(false), f.nodes...)
	f.put(f.keys.Urgent("00000001"), urgent("00000001", "filter add", all))
	etcd.Member(0).Kill()
	etcd.Member(1).Kill()
	f.lost(f.nodes...)
	for _, n := range f.nodes {
		if n.Revision() != 1 || n.Since("00000001").IsZero() && len(n.View().Urgent) > 0 {
			t.Errorf("without a quorum %s runs revision %d", n.name, n.Revision())
		}
	}
	etcd.Member(0).Begin()
	etcd.Member(1).Begin()
	f.next(false)
	f.end()
	for _, n := range f.nodes {
		f.eventually("the urgent change", func() bool { return !n.Since("00000001").IsZero() })
	}
}

// TestHalf cuts half of the nodes off, and then two members from each other.
func TestHalf(t *testing.T) {
	t.Parallel()
	etcd := clusterbed.New(t, clusterbed.Options{Members: 3})
	near, far := clusterbed.NewProxy(t, proxied(etcd, 0)), clusterbed.NewProxy(t, proxied(etcd, 1))
	f := newFleet(t, newBed(t, etcd.Endpoints()...), 4, func(n int) []string {
		if n%2 == 0 {
			return []string{"http://" + near.Addr()}
		}
		return []string{"http://" + far.Addr()}
	})
	f.converged("the first", f.next(false), f.nodes...)
	far.Silence()
	f.converged("half of them", f.next(false), f.nodes[0], f.nodes[2])
	f.lost(f.nodes[1], f.nodes[3])
	if f.nodes[1].Revision() != 1 {
		t.Errorf("a node that hears nothing runs revision %d", f.nodes[1].Revision())
	}
	far.Heal()
	f.converged("the other half", 2, f.nodes...)
	// A member that the others do not hear has no leader: its nodes know that they may miss something.
	etcd.Member(1).Peers().Silence()
	etcd.Member(0).Peers().Silence()
	f.eventually("a node behind a member without a leader", func() bool { return !f.nodes[0].View().Reached || !f.nodes[1].View().Reached })
	etcd.Member(1).Peers().Heal()
	etcd.Member(0).Peers().Heal()
	f.next(true)
	f.next(false)
	f.end()
}

func proxied(b *clusterbed.Bed, member int) string { return b.Member(member).Proxy().Addr() }

// lost waits until nodes know that etcd does not answer.
func (f *fleet) lost(nodes ...*node) {
	f.Helper()
	for _, n := range nodes {
		f.eventually("etcd lost: "+n.name, func() bool { return !n.View().Reached })
	}
}
