// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
	"culvert/internal/cluster/agent"
	"culvert/internal/cluster/clusterbed"
	"culvert/internal/cluster/recorder"
)

// counting is a plane whose counters change all the time.
type counting struct {
	*recorder.Recorder
	frames *atomic.Uint64
}

// State implements agent.Plane.
func (c counting) State(s *cluster.State) {
	c.Recorder.State(s)
	s.Interfaces = append(s.Interfaces, cluster.InterfaceState{Name: "eth0", RX: c.frames.Add(1)})
}

// TestSpread has nodes start at once. Each writes its counters once in a period, and all of them do over the whole of it.
func TestSpread(t *testing.T) {
	t.Parallel()
	const nodes = 30
	b := newBed(t, clusterbed.New(t, clusterbed.Options{}).Endpoints()...)
	watch := b.Watch(t.Context(), b.keys.Nodes(), clientv3.WithPrefix())
	var frames atomic.Uint64
	for i := range nodes {
		b.start(fmt.Sprintf("n%d", i), b.with, func(o *agent.Options) {
			o.Keep, o.Plane = nil, counting{new(recorder.Recorder), &frames}
		})
	}
	written := make(map[string]int)
	var first, last time.Time
	seconds := 0
	for r := range watch {
		for _, e := range r.Events {
			key := string(e.Kv.Key)
			if written[key]++; written[key] != 2 {
				continue
			}
			if last = time.Now(); seconds == 0 {
				first = last
			}
			seconds++
		}
		if seconds == nodes {
			break
		}
	}
	// By chance all are within a fifth of the period once in 10^19 times.
	if took := last.Sub(first); took < cluster.StatePeriod/5 {
		t.Errorf("the counters of %d nodes were written within %v", nodes, took)
	}
}
