// SPDX-License-Identifier: Apache-2.0

// Package routestage is the IP router as a stage: its configuration, the checks of the host that it needs, and the
// process that keeps it in step with the kernel.
package routestage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/host/netdev"
	"culvert/internal/host/pulse"
	"culvert/internal/route"
	"culvert/internal/route/routeplane"
	"culvert/internal/show/text"
	"culvert/internal/stage"
)

// Stage is the IP router.
type Stage struct{}

// Name implements stage.Stage.
func (Stage) Name() string { return routeplane.Stage }

// Table implements stage.Stage.
func (Stage) Table() config.Table { return new(Table) }

// Plan implements stage.Stage.
func (s Stage) Plan(f stage.File) (stage.Plan, error) {
	t := stage.Table[*Table](f, s)
	if t == nil {
		return nil, nil
	}
	return &plan{*t}, nil
}

// plan is a [route] table.
type plan struct{ file Table }

// Name implements stage.Plan.
func (p *plan) Name() string { return Stage{}.Name() }

// Prepare implements stage.Plan.
func (p *plan) Prepare(_ context.Context, start stage.Start) (stage.Prepared, error) {
	return &prepared{plan: p, start: start, turns: pulse.New("the loop that keeps the mirror of the routing tables", turnsWithin)}, nil
}

// Check implements stage.Plan.
func (p *plan) Check(s stage.Situation) error { return CheckForwarded(s) }

// CheckHost implements stage.HostChecker: it returns an error if the IP router would act differently from the kernel on this host.
func (p *plan) CheckHost(h stage.Host) error {
	var errs config.Errors
	if !p.file.BypassNetfilter {
		if err := checkNetfilter(h.Interfaces); err != nil {
			errs.Add(p.file.Locate("bypass_netfilter", err))
		}
	}
	return errs.Err()
}

// CheckPort implements stage.PortChecker.
func (p *plan) CheckPort(name string) error { return netdev.CheckTags(name) }

// prepared is a prepared IP router. It reserves nothing: all that it needs is a data plane.
type prepared struct {
	*plan
	start stage.Start
	inst  *datapath.Instance
	turns *pulse.Pulse
}

// turnsWithin bounds the turns of the loop that keeps the mirror, which come 50 times a second.
const turnsWithin = 20 * time.Second

// Part implements stage.Prepared. Without a process there is no mirror, and the programs ask the kernel for each packet.
func (p *prepared) Part() datapath.Part {
	if !p.start.Process {
		return routeplane.NewPart(routeplane.Options{NoMirror: true})
	}
	return &part{Part: routeplane.NewPart(routeplane.Options{
		NoMirror: !p.file.MirrorOn(), Blocks4: p.file.blocks4(), Blocks6: p.file.blocks6(),
	})}
}

// syncWait bounds how long Commit waits for devices and tables to be read.
const syncWait = 30 * time.Second

// Commit implements stage.Prepared. Without a process it reads devices and sysctls once, and the data plane does not
// learn of later changes.
func (p *prepared) Commit(ctx context.Context, inst *datapath.Instance, rest func() error) error {
	p.inst = inst
	if !p.start.Process {
		if err := readOnce(ctx, inst); err != nil {
			return err
		}
	}
	return rest()
}

// readOnce writes the present devices and settings of this host into a data plane.
func readOnce(ctx context.Context, inst *datapath.Instance) error {
	ctx, cancel := context.WithTimeout(ctx, syncWait)
	defer cancel()
	plane, err := routeplane.Open(inst)
	if err != nil {
		return err
	}
	defer plane.Close()
	synced := false
	err = route.Run(ctx, route.Options{Plane: plane, Generic: inst.Generic(), OnSynced: func() { synced = true; cancel() }})
	if synced {
		return nil
	}
	if err == nil {
		err = ctx.Err()
	}
	return fmt.Errorf("reading devices and routes of this host: %w", err)
}

// Serve implements stage.Prepared. If it fails, it leaves all packets to the kernel, since nothing follows the host's
// changes any more.
func (p *prepared) Serve(ctx context.Context, ready func()) error {
	plane, err := routeplane.Open(p.inst)
	if err != nil {
		return err
	}
	defer plane.Close()
	guard := &guardedPlane{Plane: plane, inst: p.inst}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return route.Run(ctx, route.Options{Plane: guard, Generic: p.inst.Generic(), Log: p.start.Log, Status: statusOf(p.inst), OnSynced: ready, Turns: p.turns})
	})
	if !p.file.BypassNetfilter {
		g.Go(func() error { return guard.watch(ctx, p.start.Log) })
	}
	g.Go(func() error { return watchForwarding(ctx, p.inst.AttachedNow, p.start.Log) })
	err = g.Wait()
	if err != nil && !errors.Is(err, context.Canceled) {
		err = errors.Join(err, guard.guard(true))
	}
	return err
}

// Alive implements stage.Watched.
func (p *prepared) Alive() error { return p.turns.Alive() }

// Short implements stage.Limited.
func (p *prepared) Short() string {
	status := statusOf(p.inst)
	if status == nil {
		return ""
	}
	return short(status.Load())
}

// short says in which mirrors there is no room for some routes, "" for none.
func short(s route.Stats) string {
	var lines []string
	for _, f := range []struct {
		name, key string
		route.FamilyStats
	}{{"IPv4", "blocks4", s.IPv4}, {"IPv6", "blocks6", s.IPv6}} {
		if f.Lost > 0 {
			lines = append(lines, fmt.Sprintf("the %s mirror has no room for %s of the routing table: packets to them ask the kernel: raise %s in [route], now %s",
				f.name, entries(f.Lost), f.key, text.Grouped(uint64(f.BlocksTotal))))
		}
	}
	return strings.Join(lines, "; ")
}

func entries(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return text.Grouped(uint64(n)) + " entries"
}

// Settle implements stage.Prepared.
func (p *prepared) Settle(context.Context) error { return nil }

// Close implements stage.Prepared.
func (p *prepared) Close() error { return nil }
