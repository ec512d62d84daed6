// SPDX-License-Identifier: Apache-2.0

//go:build long

package lab

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"culvert/internal/cluster"
)

// TestFleetLong walks through what takes minutes in docs/fleet.md: each member of etcd killed, so also the leader, etcd gone for two
// minutes, a node that was away during ten changes, and one that starts in maintenance.
func TestFleetLong(t *testing.T) {
	f := newFleetWalk(t)
	for _, ns := range numbered("e", fleetMembers) {
		f.part("without "+ns, func() { f.without(ns) })
	}
	f.part("etcd", func() { f.withoutEtcd(120, time.Second) })
	f.part("away", f.away)
	f.part("maintained", f.maintained)
}

// away stops a balancer, changes the configuration ten times, and starts it again.
func (f *fleetWalk) away() {
	if err := f.l.Stop(CulvertProcess("lb3"), syscall.SIGKILL); err != nil {
		f.t.Fatal(err)
	}
	eventually(f.t, "lb3 is away", func() bool { return len(f.status()) == fleetFilters+fleetBalancers-1 })
	for n := range 10 {
		out, err := f.apply("lb", func(s string) string { return fmt.Sprintf("%s# change %d\n", s, n) }, "--canary", "0", "--step", "100%", "--wait", "100ms")
		if err != nil {
			f.t.Fatalf("change %d: %v\n%s", n, err, out)
		}
	}
	if err := f.l.StartNode("lb3"); err != nil {
		f.t.Fatal(err)
	}
	f.wantRevision(f.newest(), "lb1", "lb2", "lb3")
	f.allAnnounce()
}

// maintained kills a balancer that is in maintenance, and starts it again: it announces nothing before its maintenance ends.
func (f *fleetWalk) maintained() {
	f.allAnnounce()
	f.fleet("maintain", "lb2")
	f.wantHops(fleetBalancers - 1)
	if err := f.l.Stop(CulvertProcess("lb2"), syscall.SIGKILL); err != nil {
		f.t.Fatal(err)
	}
	eventually(f.t, "lb2 is away", func() bool { return f.node("lb2").Node == "" })
	if err := f.l.StartNode("lb2"); err != nil {
		f.t.Fatal(err)
	}
	eventually(f.t, "lb2 is there, and safe to stop", func() bool { return f.node("lb2").Maintain == cluster.MaintainSafe })
	const looks = 20
	for range looks {
		if n, err := f.l.NextHops("router", lbVIP4); err != nil || n != fleetBalancers-1 {
			f.t.Fatalf("%d balancers announce the VIP after a start in maintenance, error %v", n, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	f.resume("lb2")
}
