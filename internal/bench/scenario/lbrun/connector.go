// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"context"
	"errors"
)

// connector is a balancer of connections under test.
type connector interface {
	// available returns an error that says what the machine lacks for it.
	available() error
	// place puts it into a bed that has no routes to the service yet. remove is called after it, even when it failed.
	place(ctx context.Context, b *tcpBed) error
	remove() error
	// spreads tells whether the backends are asked by addresses of their own.
	spreads() bool
}

// noBalancer is no balancer: client and backends are neighbors, or if routed the kernel forwards requests between them, and
// answers take the short way. That is what direct server return can reach.
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

// natBalancer is a balancer that replaces addresses both ways.
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
