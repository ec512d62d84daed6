// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"culvert/internal/cluster/lastgood"
	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/host/filestamp"
	"culvert/internal/host/pins"
	"culvert/internal/lb/lbstage"
	"culvert/internal/route/routestage"
	"culvert/internal/scion"
	"culvert/internal/stage"
	"culvert/internal/stages"
)

// up is a configuration that was brought up.
type up struct {
	file     stage.File
	name     string // of the data plane
	on       []string
	plans    []stage.Plan
	prepared []stage.Prepared // in the order in which a packet meets them
	inst     *datapath.Instance
	stamps   []filestamp.Stamp // of the files that were read
	readAt   time.Time
	// temporary says that the data plane ends with the instance.
	temporary bool
	// cluster is nil without one, and set has its documents in the file, nil for none. overlaid is to be called once the plans are in force.
	cluster  *member
	set      *lastgood.Set
	overlaid func(*datapath.Instance) error
}

// bringUp has all stages plan and prepare, attaches the data plane, and has all stages commit. After an error nothing has
// changed. If no stage has an interface for a data plane, there is none, and inst is nil. u says whether it is temporary, and of which
// cluster; bringUp returns it.
func bringUp(ctx context.Context, f stage.File, start stage.Start, u *up) (_ *up, err error) {
	u.file, u.name = f, f.Node.Name
	if u.plans, err = u.plan(); err != nil {
		return nil, err
	}
	if !start.Process {
		if err := checkNeedsProcess(f); err != nil {
			return nil, err
		}
	}
	if err := u.place(); err != nil {
		return nil, err
	}
	u.overlaid = u.cluster.overlay(u.name, u.plans)
	defer func() {
		if err != nil {
			u.close()
		}
	}()
	for _, p := range u.plans {
		prepared, err := p.Prepare(ctx, start)
		if err != nil {
			return nil, err
		}
		u.prepared = append(u.prepared, prepared)
	}
	if len(u.on) == 0 {
		return u, nil
	}
	if err := u.check(start); err != nil {
		return nil, err
	}
	if b, ok := planned[*lbstage.Plan](u.plans); ok && b.On() && has(f.Node, scion.Stage{}) && !start.Process {
		return nil, fmt.Errorf("router %s has VIPs made by hand: a load balancer beside [scion] needs the process, use culvert run", u.name)
	}
	o := u.options(start.Process)
	o.Temporary = u.temporary
	return u, u.attach(ctx, o)
}

// plan returns the plans of all stages that the file turns on, but for those that have errors, and notes what the files were like.
func (u *up) plan() (plans []stage.Plan, err error) {
	var errs config.Errors
	if u.readAt.IsZero() {
		u.readAt = time.Now()
	}
	u.stamps = filestamp.All(files(u.file), u.readAt)
	for _, s := range stages.All() {
		p, err := s.Plan(u.file)
		if err != nil {
			errs.Add(err)
			continue
		}
		if p != nil {
			plans = append(plans, p)
		}
		if r, ok := p.(stage.Reader); ok {
			u.stamps = append(u.stamps, filestamp.All(r.Files(), u.readAt)...)
		}
	}
	return plans, errs.Err()
}

// files returns the paths of a configuration file and its drop-ins.
func files(f stage.File) []string {
	if len(f.Node.Files) > 0 {
		return f.Node.Files
	}
	return []string{f.Path} // of the SCION router alone
}

// place finds the name of the data plane and the interfaces to attach it to.
func (u *up) place() (err error) {
	u.on = u.file.Node.Interfaces
	for _, p := range u.plans {
		if placer, ok := p.(stage.Placer); ok {
			if u.name, u.on, err = placer.Place(u.on); err != nil {
				return err
			}
		}
	}
	return nil
}

// planned returns the plan of type P.
func planned[P stage.Plan](plans []stage.Plan) (p P, ok bool) {
	for _, plan := range plans {
		if p, ok = plan.(P); ok {
			return p, true
		}
	}
	return p, false
}

// checkNeedsProcess returns an error if the file has stages that together need a process.
func checkNeedsProcess(f stage.File) error {
	if !has(f.Node, scion.Stage{}) {
		return nil
	}
	for _, s := range []stage.Stage{routestage.Stage{}, lbstage.Stage{}} {
		if has(f.Node, s) {
			return fmt.Errorf("%s has [scion] and [%s]: both need the process, use culvert run -c %[1]s", f.Path, s.Name())
		}
	}
	return nil
}

// check has all stages check their plans against the running data plane and the host. If the data plane cannot be read, attaching
// would silently remove what was made by hand, so check returns an error.
func (u *up) check(start stage.Start) error {
	running, err := datapath.OpenHere(u.name)
	if err != nil {
		return err
	}
	if running != nil {
		defer running.Close()
	}
	if err := u.checkPlans(running); err != nil {
		return err
	}
	return u.checkHost(start.Process, os.Getpid(), func(err error) { start.Log.Warn(err.Error()) })
}

// checkPlans has all stages check their plans against each other and against the running data plane, nil if there is none.
func (u *up) checkPlans(running *datapath.Instance) error {
	var errs config.Errors
	for _, p := range u.plans {
		errs.Add(p.Check(stage.Situation{Interfaces: u.on, Running: running, Stages: checkers(u.plans)}))
	}
	return errs.Err()
}

// checkHost has all stages look whether the host has what they need. What the process served holds is not in the way.
func (u *up) checkHost(process bool, served int, note func(error)) error {
	var errs config.Errors
	for _, p := range u.plans {
		if c, ok := p.(stage.HostChecker); ok {
			errs.Add(c.CheckHost(stage.Host{Interfaces: u.on, Process: process, Served: served, Note: note}))
		}
	}
	for _, name := range u.on {
		if !pins.NoInterface(name) { // attaching says so, or waits for it
			if err := checkPort(u.plans, name); err != nil {
				errs.Add(u.locate(name, err))
			}
		}
	}
	return errs.Err()
}

// checkPort returns an error if one of the stages does not work on an interface.
func checkPort(plans []stage.Plan, name string) error {
	for _, p := range plans {
		if c, ok := p.(stage.PortChecker); ok {
			if err := c.CheckPort(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// options returns the options of the data plane, without parts.
func (u *up) options(process bool) datapath.Options {
	n := u.file.Node
	return datapath.Options{
		Name: u.name, Interfaces: u.on, Generic: n.Mode == config.ModeGeneric, Workers: workers(n), Unattended: !process,
		// Only a process attaches to interfaces that appear later, and a SCION router needs its own from the start.
		Wait: n.Missing == config.MissingWait && process && !has(n, scion.Stage{}),
	}
}

// attach loads the program, attaches it to the interfaces, and has the stages commit. Options are those of u.options.
func (u *up) attach(ctx context.Context, o datapath.Options) (err error) {
	o.Parts = parts(u.prepared)
	commit := func(inst *datapath.Instance) error { return commit(ctx, inst, u.prepared) }
	if !o.Temporary {
		o.Begin = commit
	}
	if u.inst, err = datapath.Attach(o); err != nil || !o.Temporary {
		return err
	}
	return commit(u.inst)
}

// parts returns the parts of the program that prepared stages have.
func parts(prepared []stage.Prepared) (all []datapath.Part) {
	for _, p := range prepared {
		if part := p.Part(); part != nil {
			all = append(all, part)
		}
	}
	return all
}

// locate adds the position of an interface in the file to an error about it.
func (u *up) locate(name string, err error) error {
	at := slices.Index(u.file.Node.Interfaces, name)
	if at < 0 {
		return err
	}
	return u.file.Node.Locate(fmt.Sprintf("interfaces[%d]", at), err)
}

func workers(n *config.Node) datapath.Workers {
	return datapath.Workers{CPUs: n.Workers.CPUNumbers(), Queue: n.Workers.QueueLen()}
}

// commit has the stages commit in their order. Each calls rest for those behind it, and restores what it has changed if that or
// rest fails. The SCION router stands behind the load balancer because it calls rest first.
func commit(ctx context.Context, inst *datapath.Instance, all []stage.Prepared) error {
	if len(all) == 0 {
		return nil
	}
	return all[0].Commit(ctx, inst, func() error { return commit(ctx, inst, all[1:]) })
}

// close releases what the stages have taken. The data plane stays.
func (u *up) close() {
	closeStages(u.prepared, logger())
	if u.inst != nil {
		u.inst.Close()
	}
}

// closeStages closes prepared stages, the last one first.
func closeStages(prepared []stage.Prepared, log *slog.Logger) {
	for _, p := range slices.Backward(prepared) {
		if err := p.Close(); err != nil {
			log.Error("closing a stage failed", "stage", p.Name(), "err", err)
		}
	}
}

// settle does once the work that a process would do all the time.
func (u *up) settle(ctx context.Context) error {
	var errs []error
	for _, p := range u.prepared {
		errs = append(errs, p.Settle(ctx))
	}
	return errors.Join(errs...)
}

// checkers converts plans to a slice of the interface that Situation.Stages has.
func checkers(plans []stage.Plan) (all []stage.Checker) {
	for _, p := range plans {
		all = append(all, p)
	}
	return all
}
