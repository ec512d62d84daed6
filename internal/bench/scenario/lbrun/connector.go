// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"context"
	"errors"
)

// connector is a balancer of connections under test.
type connector interface {
	// available returns nil if the balancer can be used. Otherwise the error says what the machine lacks.
	available() error
	// place puts the balancer into a bed that has no routes to the service yet. The caller must call remove, also after an
	// error.
	place(ctx context.Context, b *tcpBed) error
	// remove removes what does not disappear with the bed.
	remove() error
	// spreads tells whether connections end at addresses of the backends. Otherwise they end at the VIP.
	spreads() bool
}

// noBalancer is a bed without a balancer: client and backends are neighbors or, if routed is set, the kernel forwards requests
// between them. Answers take the direct path. This is the best that direct server return can reach.
type noBalancer struct{ routed bool }

func (d noBalancer) place(_ context.Context, b *tcpBed) error {
	if !d.routed {
		return b.routes(directly, directly)
	}
	return errors.Join(makeHost(b.path, nil, false), b.nearby(), b.routes(throughBalancer, directly))
}

func (noBalancer) available() error { return nil }

func (noBalancer) remove() error { return nil }

func (noBalancer) spreads() bool { return false }

// natBalancer is a balancer that translates addresses in both directions.
type natBalancer struct{ *kernelPeer }

func (d natBalancer) place(ctx context.Context, b *tcpBed) error {
	if err := d.install(ctx, b.path); err != nil {
		return err
	}
	return errors.Join(b.nearby(), b.routes(throughBalancer, throughBalancer))
}

func (d natBalancer) available() error { return d.Available() }

func (natBalancer) remove() error { return nil }

func (natBalancer) spreads() bool { return true }
