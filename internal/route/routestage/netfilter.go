// SPDX-License-Identifier: Apache-2.0

package routestage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/host/netfilter"
	"culvert/internal/route/routeplane"
)

// checkNetfilter returns an error if netfilter has rules for forwarded packets, on the interfaces or in general. The fast
// path would bypass them.
func checkNetfilter(interfaces []string) error {
	found, err := netfilter.FindOn(interfaces)
	if err != nil {
		hint := "set route.bypass_netfilter = true if there are none"
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			hint = "run it as root"
		}
		return fmt.Errorf("looking for rules of netfilter: %w: %s", err, hint)
	}
	if len(found) > 0 {
		return fmt.Errorf("forwarded packets would not pass %s: remove these rules, or set "+
			"route.bypass_netfilter = true to leave them out", netfilter.Summary(found))
	}
	return nil
}

// guardedPlane leaves all packets to the kernel while netfilter has rules for them.
type guardedPlane struct {
	*routeplane.Plane
	inst    *datapath.Instance
	mu      sync.Mutex
	policy  routeplane.Policy
	guarded bool

	// on and failed are the results of the last look: whether packets were left to the kernel, and whether the
	// rules could not be read. Only look uses them.
	on, failed bool
}

// SetPolicy implements route.Plane.
func (g *guardedPlane) SetPolicy(p routeplane.Policy) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.policy = p
	return g.apply()
}

// Attached implements route.Plane. It returns current names, since an interface may be renamed while it carries the
// program.
func (g *guardedPlane) Attached() []string { return g.inst.AttachedNow() }

// apply writes the policy, with both families left to the kernel if guarded. The caller holds mu.
func (g *guardedPlane) apply() error {
	p := g.policy
	if g.guarded {
		p.Kernel4, p.Kernel6 = true, true
	}
	return g.Plane.SetPolicy(p)
}

// guard leaves all packets to the kernel, or no longer does.
func (g *guardedPlane) guard(on bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.guarded = on
	return g.apply()
}

// watchPeriod is the period in which netfilter and forwarding are looked at.
const watchPeriod = 2 * time.Second

// watch looks for rules while the router runs. It looks at once, since rules may have been added after Check.
func (g *guardedPlane) watch(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	for {
		if err := g.look(log); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// look leaves all packets to the kernel if netfilter has rules now, and ends that if it has none.
func (g *guardedPlane) look(log *slog.Logger) error {
	found, err := netfilter.FindOn(g.inst.AttachedNow())
	if err != nil && !g.failed {
		log.Warn("the rules of netfilter cannot be read: the kernel forwards all packets until they can", "err", err)
	}
	g.failed = err != nil
	if on := len(found) > 0 || g.failed; on == g.on {
		return nil
	}
	g.on = !g.on
	if err := g.guard(g.on); err != nil {
		return err
	}
	switch {
	case g.failed:
	case g.on:
		log.Warn("forwarded packets have to pass rules of netfilter: the kernel forwards them all from now on",
			"rules", netfilter.Summary(found))
	default:
		log.Info("the rules of netfilter are gone: the fast path forwards again")
	}
	return nil
}
