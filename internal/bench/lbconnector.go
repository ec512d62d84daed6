// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
)

// lbConnector is a balancer of connections under test.
type lbConnector interface {
	// available returns an error that says what the machine lacks for it.
	available() error
	// place puts it into a bed that has no routes to the service yet. remove is called after it, even when it failed.
	place(ctx context.Context, b *lbTCPBed) error
	remove() error
	// spreads tells whether the backends are asked by addresses of their own.
	spreads() bool
}

// lbNone is no balancer: client and backends are neighbours, or if routed the kernel forwards requests between them, and
// answers take the short way. That is what direct server return can reach.
type lbNone struct{ routed bool }

func (d lbNone) place(_ context.Context, b *lbTCPBed) error {
	if !d.routed {
		return b.routes(lbDirectly, lbDirectly)
	}
	return errors.Join(lbHost(b.path, nil, false), b.nearby(), b.routes(lbThroughBalancer, lbDirectly))
}

func (lbNone) available() error { return nil }

func (lbNone) remove() error { return nil }

func (lbNone) spreads() bool { return false }

// lbNAT is a balancer that replaces addresses both ways.
type lbNAT struct{ *lbPeer }

func (d lbNAT) place(ctx context.Context, b *lbTCPBed) error {
	if err := d.install(ctx, b.path); err != nil {
		return err
	}
	return errors.Join(b.nearby(), b.routes(lbThroughBalancer, lbThroughBalancer))
}

func (d lbNAT) available() error { return d.Available() }

func (lbNAT) remove() error { return nil }

func (lbNAT) spreads() bool { return true }
