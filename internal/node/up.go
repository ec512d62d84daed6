// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/lb/lbstage"
	"culvert/internal/route/routestage"
	"culvert/internal/scion"
	"culvert/internal/stage"
	"culvert/internal/stages"
)

// up is a configuration that has been brought up.
type up struct {
	file     stage.File
	name     string // of the data plane
	on       []string
	plans    []stage.Plan
	prepared []stage.Prepared // in the order in which a packet meets them
	inst     *datapath.Instance
}

// bringUp plans and prepares all stages, attaches the data plane, and has all stages commit; after an error nothing has changed.
// There is no data plane where no stage has an interface for one. Temporary ones are gone with the instance.
func bringUp(ctx context.Context, f stage.File, start stage.Start, temporary bool) (_ *up, err error) {
	u := &up{file: f, name: f.Node.Name}
	if u.plans, err = plan(f); err != nil {
		return nil, err
	}
	if !start.Process {
		if err := bothNeedTheProcess(f); err != nil {
			return nil, err
		}
	}
	u.on = f.Node.Interfaces
	for _, p := range u.plans {
		if placer, ok := p.(stage.Placer); ok {
			if u.name, u.on, err = placer.Place(u.on); err != nil {
				return nil, err
			}
		}
	}
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
	if err := u.check(); err != nil {
		return nil, err
	}
	if b, ok := planned[*lbstage.Plan](u.plans); ok && b.On() && has(f.Node, scion.Stage{}) && !start.Process {
		return nil, fmt.Errorf("router %s has VIPs made by hand: a load balancer beside [scion] needs the process, use culvert run", u.name)
	}
	return u, u.attach(ctx, start, temporary)
}

// plan has all stages plan.
func plan(f stage.File) (plans []stage.Plan, err error) {
	for _, s := range stages.All() {
		p, err := s.Plan(f)
		if err != nil {
			return nil, err
		}
		if p != nil {
			plans = append(plans, p)
		}
	}
	return plans, nil
}

// planned finds the plan of a stage.
func planned[P stage.Plan](plans []stage.Plan) (p P, ok bool) {
	for _, any := range plans {
		if p, ok = any.(P); ok {
			return p, true
		}
	}
	return p, false
}

// bothNeedTheProcess refuses what no data plane does without a process.
func bothNeedTheProcess(f stage.File) error {
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

// check has all stages look at what runs before it is touched. One that cannot be read is an error: to attach would take what
// was made by hand out of it, unseen.
func (u *up) check() error {
	running, err := datapath.OpenHere(u.name)
	if err != nil {
		return err
	}
	if running != nil {
		defer running.Close()
	}
	for _, p := range u.plans {
		if err := p.Check(stage.Situation{Interfaces: u.on, Running: running, Stages: checkers(u.plans)}); err != nil {
			return err
		}
	}
	return nil
}

// attach loads the program, puts it on the interfaces, and has the stages commit.
func (u *up) attach(ctx context.Context, start stage.Start, temporary bool) (err error) {
	n := u.file.Node
	o := datapath.Options{
		Name: u.name, Interfaces: u.on, Generic: n.Mode == config.ModeGeneric, Workers: workers(n), Temporary: temporary,
		Unattended: !start.Process, Wait: n.Missing == config.MissingWait && start.Process, // else nobody attaches to what comes later
	}
	for _, p := range u.prepared {
		if part := p.Part(); part != nil {
			o.Parts = append(o.Parts, part)
		}
	}
	commit := func(inst *datapath.Instance) error { return commit(ctx, inst, u.prepared) }
	if !temporary {
		o.Begin = commit
	}
	if u.inst, err = datapath.Attach(o); err != nil || !temporary {
		return err
	}
	return commit(u.inst)
}

func workers(n *config.Node) datapath.Workers {
	return datapath.Workers{CPUs: n.Workers.CPUNumbers(), Queue: n.Workers.QueueLen()}
}

// commit has the stages commit in their order. Each calls the rest itself, and puts back what it has changed if the rest fails:
// so the SCION router comes behind the load balancer, because what it writes is not put back.
func commit(ctx context.Context, inst *datapath.Instance, all []stage.Prepared) error {
	if len(all) == 0 {
		return nil
	}
	return all[0].Commit(ctx, inst, func() error { return commit(ctx, inst, all[1:]) })
}

// close gives back what the stages have taken. The data plane goes on.
func (u *up) close() {
	for _, p := range slices.Backward(u.prepared) {
		if err := p.Close(); err != nil {
			logger().Error("a stage did not end as it should", "stage", p.Name(), "err", err)
		}
	}
	if u.inst != nil {
		u.inst.Close()
	}
}

// settle does once what a process would go on doing.
func (u *up) settle(ctx context.Context) error {
	var errs []error
	for _, p := range u.prepared {
		errs = append(errs, p.Settle(ctx))
	}
	return errors.Join(errs...)
}
