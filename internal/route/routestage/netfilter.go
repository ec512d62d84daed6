// SPDX-License-Identifier: Apache-2.0

package routestage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/host/netdev"
	"culvert/internal/host/netfilter"
	"culvert/internal/route/routeplane"
)

// checkNetfilter refuses to forward past rules that the kernel would apply, on the interfaces or on all packets.
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

	// What follows is look's: whether there were rules, and whether that could not be told.
	on, failed bool
}

// SetPolicy implements route.Plane.
func (g *guardedPlane) SetPolicy(p routeplane.Policy) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.policy = p
	return g.apply()
}

// Attached implements route.Plane: an interface may get another name while it carries the program.
func (g *guardedPlane) Attached() []string { return g.inst.AttachedNow() }

func (g *guardedPlane) apply() error {
	p := g.policy
	if g.guarded {
		p.Kernel4, p.Kernel6 = true, true
	}
	return g.Plane.SetPolicy(p)
}

func (g *guardedPlane) guard(on bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.guarded = on
	return g.apply()
}

// watchPeriod is how often netfilter is looked at.
const watchPeriod = 2 * time.Second

// watch looks for rules that come while the router runs: the first time before the first tick, as some may have come since
// the start looked.
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

// look leaves all packets to the kernel if there are rules now, or takes them back.
func (g *guardedPlane) look(log *slog.Logger) error {
	found, err := netfilter.FindOn(g.inst.AttachedNow())
	if err != nil && !g.failed {
		log.Warn("whether netfilter has rules cannot be told: the kernel forwards all packets until it can", "err", err)
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

// ethtool's flag for tags that the device takes off (ETH_FLAG_RXVLAN of linux/ethtool.h).
const rxVLAN = 1 << 8

// checkTags refuses a device that takes the VLAN tag off before the program runs, which would route packets as if they had
// none. A veth never does: what comes without its tag there was sent so by the other end.
func checkTags(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return fmt.Errorf("interface %s does not exist: see 'ip link'", name)
		}
		return fmt.Errorf("looking at interface %s: %w", name, err)
	}
	if l.Type() == "veth" {
		return nil
	}
	flags, err := netdev.Ethtool(name, unix.ETHTOOL_GFLAGS, 0)
	if err == nil && flags&rxVLAN != 0 {
		return fmt.Errorf("%s takes VLAN tags off before culvert sees them: ethtool -K %[1]s rxvlan off", name)
	}
	return nil
}
