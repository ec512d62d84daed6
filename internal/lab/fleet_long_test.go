// SPDX-License-Identifier: Apache-2.0

//go:build long

package lab

import (
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
