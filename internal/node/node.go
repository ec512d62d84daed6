// SPDX-License-Identifier: Apache-2.0

// Package node carries out a configuration file: it is where the stages meet.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/nexthop"
	"culvert/internal/scion"
)

// Run attaches what the configuration at path asks for and keeps it in step with the system until
// ctx ends. The data plane stays.
func Run(ctx context.Context, path string) error {
	n, err := config.Load(path)
	if err != nil {
		return err
	}
	if n.Route != nil {
		if err := checkRoute(n); err != nil {
			return err
		}
	}
	wanted, err := compileFilter(n, path, n.Interfaces)
	if err != nil {
		return err
	}
	balanced, err := compileBalance(n)
	if err != nil {
		return err
	}
	if n.SCION == nil {
		return runAlone(ctx, n, wanted, balanced)
	}
	o := options(n)
	if balanced != nil {
		r, err := scion.LoadTopologyOnly(n.SCION.Config)
		if err != nil {
			return err
		}
		if o.Balance, err = balanced.plan(r.ID()); err != nil {
			return err
		}
	}
	deps := scion.Kernel(o, beside(ctx, n, balanced))
	deps.Interfaces, deps.BFDMinTTL = n.Interfaces, uint8(n.SCION.BFDMinTTL)
	if wanted != nil {
		wanted.withFilter(&deps)
	}
	if attach := deps.Attach; n.Route != nil {
		deps.Attach = func(r *scion.Router, interfaces []string) (scion.DataPlane, error) {
			if err := checkTags(interfaces); err != nil { // the router may have found them itself
				return nil, err
			}
			return attach(r, interfaces)
		}
	}
	return scion.Run(ctx, n.SCION.Config, deps)
}

// options are how the configuration wants the data plane, name and interfaces aside.
func options(n *config.Node) datapath.Options {
	return datapath.Options{Generic: n.Mode == config.ModeGeneric, Workers: workers(n), Route: routeOptions(n)}
}

func workers(n *config.Node) datapath.Workers {
	return datapath.Workers{CPUs: n.Workers.CPUNumbers(), Queue: n.Workers.QueueLen()}
}

// neighbourWait is how long Attach waits for neighbours to answer.
const neighbourWait = 3 * time.Second

// Attach attaches what the configuration at path asks for to the interfaces, finds the neighbours
// of all links, and leaves. There is no slow path, links count as up, and keys may come later. What
// was attached and what was not found is told to out.
func Attach(ctx context.Context, path string, interfaces []string, out io.Writer) error {
	n, err := config.Load(path)
	if err != nil {
		return err
	}
	wanted, err := compileFilter(n, path, interfaces)
	if err != nil {
		return err
	}
	balanced, err := compileBalance(n)
	if err != nil {
		return err
	}
	switch {
	case n.SCION != nil && balanced != nil:
		return fmt.Errorf("%s has [scion] and [balance]: both need the process, use culvert run -c %[1]s", path)
	case n.Route != nil:
		return attachRoute(ctx, n, wanted, balanced, path, interfaces, out)
	case n.SCION == nil:
		return attachAlone(ctx, n, wanted, balanced, interfaces, out)
	}
	r, inst, missing, err := attach(ctx, path, interfaces, false, wanted)
	if err != nil {
		return err
	}
	defer inst.Close()
	tellAttached(inst, "router "+r.ID(), out)
	for _, l := range missing {
		fmt.Fprintf(out, "no neighbour for link %s yet: once %s answers, attach again\n", l.Name, l.Remote.Addr())
	}
	if keys, err := inst.Keys(); err == nil && len(keys) == 0 {
		fmt.Fprintf(out, "no key yet: culvert key add %s 0 BASE64\n", r.ID())
	}
	return nil
}

// AttachTemporary is Attach for a measurement: the data plane is gone when the instance is closed, or with the
// process. A link whose neighbour does not answer is an error.
func AttachTemporary(ctx context.Context, path string, interfaces []string) (*datapath.Instance, error) {
	_, inst, missing, err := attach(ctx, path, interfaces, true, nil)
	switch {
	case err != nil:
		return nil, err
	case ctx.Err() != nil:
		inst.Close()
		return nil, ctx.Err()
	case len(missing) > 0:
		inst.Close()
		return nil, fmt.Errorf("no neighbour for link %s: %s does not answer", missing[0].Name, missing[0].Remote.Addr())
	}
	return inst, nil
}

// attach also returns the links whose neighbour was not found.
func attach(ctx context.Context, path string, interfaces []string, temporary bool, wanted *wantedFilter) (
	r *scion.Router, inst *datapath.Instance, missing []datapath.Link, err error,
) {
	n, err := config.Load(path)
	if err != nil {
		return nil, nil, nil, err
	}
	if n.SCION == nil {
		return nil, nil, nil, fmt.Errorf("%s has no [scion] table", path)
	}
	if r, err = scion.LoadTopologyOnly(n.SCION.Config); err != nil {
		return nil, nil, nil, err
	}
	r.Datapath.BFDMinTTL = uint8(n.SCION.BFDMinTTL)
	if err := r.CheckInterfaces(interfaces); err != nil {
		return nil, nil, nil, err
	}
	// A process whose interfaces were detached does not hold the data plane, and lives all the same.
	lock, err := scion.TakeLock(r.ID())
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() { _ = lock.Release() }()
	if err := wanted.fits(r.ID()); err != nil {
		return nil, nil, nil, err
	}
	o := options(n)
	o.Name, o.Interfaces, o.Unattended, o.Temporary = r.ID(), interfaces, true, temporary
	inst, err = datapath.Attach(o, r.Datapath)
	if err != nil {
		return nil, nil, nil, err
	}
	if err = wanted.apply(inst); err == nil {
		missing, err = prepare(ctx, inst, r)
	}
	if err != nil {
		if !inst.Adopted() {
			_ = inst.DetachAll()
		}
		inst.Close()
		return nil, nil, nil, err
	}
	return r, inst, missing, nil
}

// prepare sets what a process would keep in step: keys, link states and next hops.
func prepare(ctx context.Context, inst *datapath.Instance, r *scion.Router) ([]datapath.Link, error) {
	if r.Key != nil {
		if err := inst.ReplaceKey(*r.Key); err != nil {
			return nil, err
		}
	}
	links := r.Datapath.Links
	for i := range links {
		if err := errors.Join(inst.SetLinkUp(i, true), inst.SetLinkBFD(i, datapath.BFDSession{})); err != nil {
			return nil, err
		}
	}
	found, err := findNeighbours(ctx, links)
	if err != nil {
		return nil, err
	}
	var missing []datapath.Link
	for i, l := range links {
		if l.Scope == datapath.ScopeInternal {
			continue
		}
		nh, ok := found[l.Remote.Addr()]
		if !ok {
			missing = append(missing, l)
			continue
		}
		if err := inst.SetLinkNextHop(i, scion.NextHop(nh)); err != nil {
			return nil, err
		}
	}
	return missing, nil
}

// findNeighbours resolves the far ends of all links, as many as answer in time.
func findNeighbours(ctx context.Context, links []datapath.Link) (map[netip.Addr]nexthop.NextHop, error) {
	ctx, cancel := context.WithTimeout(ctx, neighbourWait)
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
		if l.Scope != datapath.ScopeInternal {
			want[l.Remote.Addr()] = true
		}
	}
	for _, l := range links {
		if l.Scope == datapath.ScopeInternal {
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
