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
	"culvert/internal/scion/keyring"
	"culvert/internal/scion/scionplane"
	"culvert/internal/stage"
)

// unattended attaches the router's data plane without a process to serve it. There is no slow path and no BFD, so all
// links count as up. Keys and neighbors stay as they are when it is attached.
type unattended struct {
	*plan
	start stage.Start
	lock  *Lock
	plane scionplane.Plane

	both    string            // names of the interfaces that lead both to other ASes and inside
	missing []scionplane.Link // links whose neighbor was not found
}

// Part implements stage.Prepared.
func (u *unattended) Part() datapath.Part { return scionplane.NewPart(u.router.Datapath) }

// Commit implements stage.Prepared. It runs after rest, because an earlier program uses the same map of keys.
func (u *unattended) Commit(ctx context.Context, inst *datapath.Instance, rest func() error) (err error) {
	if err := rest(); err != nil {
		return err
	}
	u.plane = scionplane.Of(inst)
	back, err := u.plane.Keep()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, back())
		}
	}()
	if u.both, err = SetLinkInterfaces(ctx, u.router, u.plane, u.file.Loose()); err != nil {
		return err
	}
	return u.fill(ctx)
}

// fill sets the key, the link states and the next hops, which a process would update.
func (u *unattended) fill(ctx context.Context) error {
	if err := u.loadKeys(clock()); err != nil {
		return err
	}
	links := u.router.Datapath.Links
	for i := range links {
		if err := errors.Join(u.plane.SetLinkUp(i, true), u.plane.SetLinkBFD(i, scionplane.BFDSession{})); err != nil {
			return err
		}
	}
	found, err := findNeighbors(ctx, links, u.generic)
	if err != nil {
		return err
	}
	for i, l := range links {
		if l.Scope == scionplane.ScopeInternal {
			continue
		}
		nh, ok := found[l.Remote.Addr()]
		if !ok {
			u.missing = append(u.missing, l)
			continue
		}
		if err := u.plane.SetLinkNextHop(i, NextHop(nh)); err != nil {
			return err
		}
	}
	return nil
}

// loadKeys loads the key of the router's files, or the keys of its schedule that there is room for.
func (u *unattended) loadKeys(now time.Time) error {
	switch keys := u.router.Keys; {
	case u.router.Scheduled():
		return u.plane.ScheduleKeys(keys, now)
	case len(keys) > 0:
		return u.plane.UseKey(keys[0].Secret)
	default:
		return nil
	}
}

// neighborWait is how long findNeighbors waits for answers.
const neighborWait = 3 * time.Second

// findNeighbors returns the next hops of the far ends of links, as many as answer within neighborWait.
func findNeighbors(ctx context.Context, links []scionplane.Link, generic bool) (map[netip.Addr]nexthop.NextHop, error) {
	ctx, cancel := context.WithTimeout(ctx, neighborWait)
	defer cancel()
	resolver, err := nexthop.New(ctx, nexthop.Options{Generic: generic})
	if err != nil {
		return nil, err
	}
	var (
		mu    sync.Mutex
		found = make(map[netip.Addr]nexthop.NextHop)
		all   = make(map[netip.Addr]bool)
	)
	for _, l := range links {
		if l.Scope != scionplane.ScopeInternal {
			all[l.Remote.Addr()] = true
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
			if len(found) == len(all) {
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

// Serve implements stage.Prepared. There is nothing to serve.
func (u *unattended) Serve(context.Context, func()) error { return nil }

// Settle implements stage.Prepared.
func (u *unattended) Settle(context.Context) error {
	out := u.start.Out
	if u.both != "" {
		fmt.Fprintf(out, "%s: a way to other ASes and maybe to the inside, too: who can send there can pose as a host of the AS\n", u.both)
	}
	for _, l := range u.missing {
		fmt.Fprintf(out, "no neighbor for link %s yet: once %s answers, attach again\n", l.Name, l.Remote.Addr())
	}
	if keys, err := u.plane.Keys(); err == nil && len(keys) == 0 {
		fmt.Fprintf(out, "no key yet: culvert key add 0 FILE --on %s\n", u.router.ID())
	}
	if schedule, err := u.plane.Schedule(); err == nil {
		for _, k := range schedule {
			if !k.Loaded && !k.Ended(clock()) {
				fmt.Fprintf(out, "key %s, valid from %s on, is not loaded yet: attach again once another has ended\n", k.ID, keyring.Text(k.NotBefore))
				break
			}
		}
	}
	return nil
}

// Missing returns an error about the first link whose neighbor was not found, nil if all were.
func (u *unattended) Missing() error {
	if len(u.missing) == 0 {
		return nil
	}
	return fmt.Errorf("no neighbor for link %s: %s does not answer", u.missing[0].Name, u.missing[0].Remote.Addr())
}

// Close implements stage.Prepared.
func (u *unattended) Close() error { return u.lock.Release() }
