// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// startBGP starts the programs that bring the table into rut's kernel. BIRD in peer starts when rut has all route origin
// authorizations. Otherwise rut would check the whole table again for each of them.
func (l *Lab) startBGP(ctx context.Context, plan bgpPlan, w waiter) error {
	before, err := l.kernelCount("rut")
	if err != nil {
		return err
	}
	if err := join(l.writeROAs(plan), l.writeBGPConfigs(plan)); err != nil {
		return err
	}
	err = l.spawn("rpki-stayrtr", "rpki", "stayrtr", "-cache", l.roaFile(), "-checktime=false",
		"-bind", fmt.Sprintf(":%d", rtrPort), "-metrics.addr", "127.0.0.1:9847", "-protocol", "1", "-log.verbose=false")
	if err != nil {
		return err
	}
	if err := l.waitRTR(ctx, w); err != nil {
		return err
	}
	if err := l.startBIRD("rut"); err != nil {
		return err
	}
	if err := l.waitOrigins(ctx, w); err != nil {
		return err
	}
	if err := l.startBIRD("peer"); err != nil {
		return err
	}
	return firstError(
		func() error { return l.waitSessions(ctx, w) },
		func() error { return l.waitTable(ctx, w, before, unix.RTPROT_BIRD) },
		func() error { return l.waitFiltered(ctx, w) },
	)
}

func (l *Lab) startBIRD(ns string) error {
	return l.spawn(ns+"-bird", ns, "bird", "-f", "-c", l.birdConfig(ns), "-s", l.birdSocket(ns))
}

func firstError(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// startPlain adds the table to rut's kernel with ip(8).
func (l *Lab) startPlain(ctx context.Context, plan bgpPlan, w waiter) error {
	before, err := l.kernelCount("rut")
	if err != nil {
		return err
	}
	err = l.Do("peer", func() error {
		for _, ipv6 := range []bool{false, true} {
			left, err := netlink.ParseIPNet(net18(netLeft, 0, ipv6).String())
			if err != nil {
				return err
			}
			if err := netlink.RouteAdd(&netlink.Route{Dst: left, Gw: net18(netPeer, 1, ipv6).Addr().AsSlice()}); err != nil {
				return fmt.Errorf("add route %s in peer: %w", left, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		nets []netip.Prefix
		gw   netip.Addr
	}{
		{"-4", plan.v4.valid, net18(netPeer, 2, false).Addr()},
		{"-6", plan.v6.valid, net18(netPeer, 2, true).Addr()},
	} {
		batch := l.file("table" + strings.TrimPrefix(f.name, "-") + ".ip")
		if err := writeFile(batch, lines(f.nets, "route add %s via "+f.gw.String()+" dev to-peer proto static\n")); err != nil {
			return err
		}
		if _, err := l.Run(ctx, "rut", "ip", f.name, "-batch", batch); err != nil {
			return err
		}
		progress(w.out, "rut: %d routes with ip %s -batch", len(f.nets), f.name)
	}
	return l.waitTable(ctx, w, before, unix.RTPROT_STATIC)
}
