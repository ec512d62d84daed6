// SPDX-License-Identifier: Apache-2.0

//go:build long

package lab

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// TestFleetLong walks through what takes minutes in docs/fleet.md: each member of etcd killed, so also the leader, etcd gone for two
// minutes, and a node that was away during ten changes.
func TestFleetLong(t *testing.T) {
	f := newFleetWalk(t)
	for _, ns := range numbered("e", fleetMembers) {
		f.part("without "+ns, func() { f.without(ns) })
	}
	f.part("etcd", func() { f.withoutEtcd(120, time.Second) })
	f.part("away", f.away)
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
