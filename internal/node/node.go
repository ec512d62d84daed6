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
	"culvert/internal/host/nexthop"
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
		if err := checkRoute(n, n.Interfaces); err != nil {
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
		if n.Workers != nil {
			logger().Warn("[workers] has no effect: only the SCION router's packets are spread, and there is no [scion]", "file", path)
		}
		return runAlone(ctx, n, wanted, balanced)
	}
	return runSCION(ctx, n, wanted, balanced)
}

// RunSCION runs the border router of a reference router's TOML file as Run does, with the defaults but for what s says. For
// a data plane that runs already it is a file with nothing but [scion]: what another file has left goes, what was made by
// hand stays.
func RunSCION(ctx context.Context, s config.SCION) error {
	n := &config.Node{SCION: &s, Missing: config.MissingRefuse, Detached: config.DetachedStay}
	wanted, err := compileFilter(n, s.Config, nil)
	if err != nil {
		return err
	}
	return runSCION(ctx, n, wanted, nil)
}

// runSCION is Run with a SCION router.
func runSCION(ctx context.Context, n *config.Node, wanted *wantedFilter, balanced *wantedBalance) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	deps := scion.Kernel(datapath.Options{}, nil)
	deps.DebugHTTP, deps.BFDMinTTL = n.SCION.DebugHTTP, uint8(n.SCION.BFDMinTTL)
	deps.Interfaces, deps.LooseLinks = n.Interfaces, n.SCION.Loose()
	deps.Attach = func(r *scion.Router, interfaces []string) (scion.DataPlane, error) {
		return attachSCION(ctx, cancel, n, wanted, balanced, r, interfaces)
	}
	err := scion.Run(ctx, n.SCION.Config, deps)
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, errDetached) && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// attachSCION attaches the data plane of a SCION router and starts the other stages' work on it. End is called when the
// process is to end.
func attachSCION(ctx context.Context, end context.CancelCauseFunc, n *config.Node, wanted *wantedFilter, balanced *wantedBalance, r *scion.Router,
	interfaces []string) (scion.DataPlane, error) {
	if n.Route != nil {
		if err := checkRoute(n, interfaces); err != nil { // the router may have found them itself
			return nil, err
		}
	}
	if err := wanted.reaches(interfaces); err != nil {
		return nil, err
	}
	o := options(n)
	o.Name = r.ID()
	balanced, err := complete(&o, wanted, balanced)
	if err != nil {
		return nil, err
	}
	return scion.Kernel(o, beside(ctx, end, n, wanted, balanced)).Attach(r, interfaces)
}

// options are how the configuration wants the data plane, name and interfaces aside.
func options(n *config.Node) datapath.Options {
	return datapath.Options{Generic: n.Mode == config.ModeGeneric, Workers: workers(n), Route: routeOptions(n), Wait: n.Missing == config.MissingWait}
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
	r, inst, missing, err := attach(ctx, path, interfaces, false, wanted, out)
	if err != nil {
		return err
	}
	defer inst.Close()
	tellAttached(inst, "router "+r.ID(), out)
	for _, l := range missing {
		fmt.Fprintf(out, "no neighbour for link %s yet: once %s answers, attach again\n", l.Name, l.Remote.Addr())
	}
	if keys, err := inst.Keys(); err == nil && len(keys) == 0 {
		fmt.Fprintf(out, "no key yet: culvert key add %s 0 FILE\n", r.ID())
	}
	return nil
}

// AttachTemporary is Attach for a measurement: the data plane is gone when the instance is closed, or with the
// process. A link whose neighbour does not answer is an error.
func AttachTemporary(ctx context.Context, path string, interfaces []string) (*datapath.Instance, error) {
	_, inst, missing, err := attach(ctx, path, interfaces, true, nil, io.Discard)
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

// attach also returns the links whose neighbour was not found. What else is worth a line is told to out.
func attach(ctx context.Context, path string, interfaces []string, temporary bool, wanted *wantedFilter, out io.Writer) (
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
	now, err := runningHere(r.ID())
	if err != nil {
		return nil, nil, nil, err
	}
	if err := wanted.fits(now); err != nil {
		return nil, nil, nil, err
	}
	o := options(n)
	o.Name, o.Interfaces, o.Unattended, o.Temporary = r.ID(), interfaces, true, temporary
	kept, gone, err := (*wantedBalance)(nil).orKept(now)
	if err != nil {
		return nil, nil, nil, err
	}
	if kept != nil {
		return nil, nil, nil, fmt.Errorf("router %s has VIPs made by hand: a load balancer beside [scion] needs the process, use culvert run", r.ID())
	}
	var both string
	begin := func(inst *datapath.Instance) (err error) {
		if both, err = scion.SetLinkInterfaces(ctx, r, inst, n.SCION.Loose()); err != nil {
			return err
		}
		if missing, err = prepare(ctx, inst, r); err == nil {
			err = wanted.apply(inst)
		}
		if err == nil && !temporary {
			tellGone(gone)
		}
		return err
	}
	if !temporary {
		o.Begin = begin
	}
	if inst, err = datapath.Attach(o, r.Datapath); err != nil {
		return nil, nil, nil, err
	}
	if temporary {
		if err := begin(inst); err != nil {
			inst.Close()
			return nil, nil, nil, err
		}
	}
	if both != "" {
		fmt.Fprintf(out, "%s: leads to other ASes and may lead inside, too: who can send there can pose as a host of the AS\n", both)
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
