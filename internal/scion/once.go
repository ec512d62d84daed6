// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/host/nexthop"
	"culvert/internal/scion/scionplane"
	"culvert/internal/stage"
)

// once is the router's data plane without a process: no slow path, links count as up, and what is known of keys and neighbors
// is what was known when it was attached.
type once struct {
	*plan
	start stage.Start
	lock  *Lock
	plane scionplane.Plane

	both    string            // interfaces that lead to other ASes and inside
	missing []scionplane.Link // whose neighbor was not found
}

// Part implements stage.Prepared.
func (o *once) Part() datapath.Part { return scionplane.NewPart(o.router.Datapath) }

// Commit implements stage.Prepared. It comes last, as an earlier program uses the same keys.
func (o *once) Commit(ctx context.Context, inst *datapath.Instance, rest func() error) (err error) {
	if err := rest(); err != nil {
		return err
	}
	o.plane = scionplane.Of(inst)
	if o.both, err = SetLinkInterfaces(ctx, o.router, o.plane, o.file.Loose()); err != nil {
		return err
	}
	return o.fill(ctx)
}

// fill sets what a process would keep in step: key, link states and next hops.
func (o *once) fill(ctx context.Context) error {
	if o.router.Key != nil {
		if err := o.plane.ReplaceKey(*o.router.Key); err != nil {
			return err
		}
	}
	links := o.router.Datapath.Links
	for i := range links {
		if err := errors.Join(o.plane.SetLinkUp(i, true), o.plane.SetLinkBFD(i, scionplane.BFDSession{})); err != nil {
			return err
		}
	}
	found, err := findNeighbors(ctx, links)
	if err != nil {
		return err
	}
	for i, l := range links {
		if l.Scope == scionplane.ScopeInternal {
			continue
		}
		nh, ok := found[l.Remote.Addr()]
		if !ok {
			o.missing = append(o.missing, l)
			continue
		}
		if err := o.plane.SetLinkNextHop(i, NextHop(nh)); err != nil {
			return err
		}
	}
	return nil
}

// neighborWait is how long it is waited for neighbors to answer.
const neighborWait = 3 * time.Second

// findNeighbors resolves the far ends of all links, as many as answer in time.
func findNeighbors(ctx context.Context, links []scionplane.Link) (map[netip.Addr]nexthop.NextHop, error) {
	ctx, cancel := context.WithTimeout(ctx, neighborWait)
	defer cancel()
	resolver, err := nexthop.New(ctx, nexthop.Options{})
	if err != nil {
		return nil, err
	}
	var (
		mu    sync.Mutex
		found = make(map[netip.Addr]nexthop.NextHop)
		want  = make(map[netip.Addr]bool)
	)
	for _, l := range links {
		if l.Scope != scionplane.ScopeInternal {
			want[l.Remote.Addr()] = true
		}
	}
	for _, l := range links {
		if l.Scope == scionplane.ScopeInternal {
			continue
		}
		resolver.Track(l.Remote.Addr(), l.Local.Addr(), func(nh nexthop.NextHop) {
			mu.Lock()
			defer mu.Unlock()
			if nh.Resolved() {
				found[l.Remote.Addr()] = nh
			}
			if len(found) == len(want) {
				cancel()
			}
		})
	}
	<-ctx.Done()
	resolver.Wait()
	mu.Lock()
	defer mu.Unlock()
	return found, nil
}

// Serve implements stage.Prepared: there is no process.
func (o *once) Serve(context.Context, func()) error { return nil }

// Settle implements stage.Prepared.
func (o *once) Settle(context.Context) error {
	out := o.start.Out
	if o.both != "" {
		fmt.Fprintf(out, "%s: leads to other ASes and may lead inside, too: who can send there can pose as a host of the AS\n", o.both)
	}
	for _, l := range o.missing {
		fmt.Fprintf(out, "no neighbour for link %s yet: once %s answers, attach again\n", l.Name, l.Remote.Addr())
	}
	if keys, err := o.plane.Keys(); err == nil && len(keys) == 0 {
		fmt.Fprintf(out, "no key yet: culvert key add 0 FILE --on %s\n", o.router.ID())
	}
	return nil
}

// Missing names the first link whose neighbor was not found, nil if all were.
func (o *once) Missing() error {
	if len(o.missing) == 0 {
		return nil
	}
	return fmt.Errorf("no neighbour for link %s: %s does not answer", o.missing[0].Name, o.missing[0].Remote.Addr())
}

// Close implements stage.Prepared.
func (o *once) Close() error { return o.lock.Release() }
