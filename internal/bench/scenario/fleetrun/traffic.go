// SPDX-License-Identifier: Apache-2.0

package fleetrun

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/stats"
)

// traffic counts what nodes and the operator exchange with etcd, above TLS.
type traffic struct {
	// requests counts what is sent: calls, beginnings of watches, signs of life of leases. connections counts those that were made.
	requests, connections atomic.Uint64
	// sent and received are in bytes.
	sent, received atomic.Uint64
}

// exchanged is what was counted so far.
type exchanged struct{ requests, connections, sent, received float64 }

func (t *traffic) now() exchanged {
	return exchanged{float64(t.requests.Load()), float64(t.connections.Load()), float64(t.sent.Load()), float64(t.received.Load())}
}

// TagRPC implements stats.Handler.
func (*traffic) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn implements stats.Handler.
func (*traffic) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (t *traffic) HandleRPC(_ context.Context, s stats.RPCStats) {
	switch p := s.(type) {
	case *stats.OutPayload:
		t.requests.Add(1)
		t.sent.Add(uint64(p.WireLength))
	case *stats.InPayload:
		t.received.Add(uint64(p.WireLength))
	}
}

// HandleConn implements stats.Handler.
func (t *traffic) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnBegin); ok {
		t.connections.Add(1)
	}
}
