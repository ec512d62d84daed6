// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"culvert/internal/api"
	"culvert/internal/cluster/lastgood"
	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/host/pins"
	"culvert/internal/stage"
)

// handle does what a request asks for.
func (p *process) handle(ctx context.Context, r Request) (*api.Reloaded, error) {
	if r.Keep {
		return p.keep()
	}
	if !r.DryRun {
		defer p.watch.systemd.Reloading()()
	}
	start := time.Now()
	result := &api.Reloaded{Name: p.up.name, File: p.up.file.Path, DryRun: r.DryRun, Changes: []string{}, Notes: []string{}}
	p.watch.loop.Beat()
	set := r.set
	if set == nil {
		set = p.up.set
	}
	next, err := p.candidate(set, func(err error) { result.Notes = append(result.Notes, withPosition(err).Error()) })
	if err == nil {
		result.Changes = append(result.Changes, changes(p.up, next)...)
		result.Changes = append(result.Changes, p.triedAgain(next.plans)...)
	}
	if r.DryRun {
		return result, err
	}
	back := p.lastKept()
	p.watch.loop.Beat()
	if err == nil {
		result.NewProgram, err = p.apply(ctx, next)
	}
	if r.set != nil && err != nil {
		return nil, err // the agent tells: what the file has is in force as before
	}
	p.reloaded(err)
	if err != nil {
		for _, one := range config.All(err) {
			p.log.Error("the configuration was not reloaded: the last good one goes on", "err", one)
		}
		return nil, err
	}
	if p.trial != nil && r.Confirm == 0 {
		result.Notes = append(result.Notes, "this keeps what waited to be kept, too")
	}
	if r.set == nil {
		p.clusterAgain()
	}
	result.Until = p.tryFor(r.Confirm, back)
	result.Milliseconds = time.Since(start).Milliseconds()
	p.log.Info("configuration reloaded", "changes", strings.Join(result.Changes, "; "), "new_program", result.NewProgram, "by", r.who())
	return result, nil
}

// who says who asks.
func (r Request) who() string {
	if r.by == "" {
		return "SIGHUP"
	}
	return r.by
}

// reloaded publishes the outcome of a reload.
func (p *process) reloaded(err error) {
	p.states.reloaded(p.up, err)
	p.exported.reload.Set(err == nil, time.Now())
}

// triedAgain returns a line for each stage that is out and that the plans have, which a reload tries again.
func (p *process) triedAgain(plans []stage.Plan) (lines []string) {
	for _, s := range p.servers {
		if s.failed() && planOf(plans, s.Name()) != nil {
			lines = append(lines, fmt.Sprintf("stage %s tried again, which was out: %v", s.Name(), s.err))
		}
	}
	return lines
}

// candidate reads the configuration again, and checks it as a start does. It touches nothing.
func (p *process) candidate(set *lastgood.Set, note func(error)) (*up, error) {
	at := time.Now()
	f, err := p.read(set)
	if err != nil {
		return nil, err
	}
	next := &up{file: f, name: f.Node.Name, readAt: at, cluster: p.cluster, set: set}
	var errs config.Errors
	next.plans, err = next.plan()
	errs.Add(err)
	errs.Add(next.place())
	if next.name == p.up.name { // another one is refused, and what is in force stays in the journal
		next.overlaid = p.cluster.overlay(next.name, next.plans)
	}
	// What else is wrong is known if the errors leave a data plane of this name with interfaces.
	if len(errs) == 0 || next.name == p.up.name && len(next.on) > 0 && p.up.inst != nil {
		errs.Add(p.check(next, note))
	}
	return next, config.Errors(withPositions(errs)).Err()
}

// check returns all errors with which a configuration would be refused.
func (p *process) check(next *up, note func(error)) error {
	if err := p.staysSame(next); err != nil {
		return err
	}
	if err := idleWorkers(next.file.Node); err != nil {
		note(err)
	}
	var errs config.Errors
	errs.Add(checkListeners(next.file.Node, os.Getpid()))
	if p.up.inst == nil {
		errs.Add(next.checkHost(true, os.Getpid(), note))
		return errs.Err()
	}
	errs.Add(next.checkPlans(p.up.inst))
	errs.Add(next.checkHost(true, os.Getpid(), note))
	errs.Add(next.checkAttach(p.up.inst, note))
	return config.Errors(withPositions(errs)).Err()
}

// staysSame refuses changes that a data plane does not survive.
func (p *process) staysSame(next *up) error {
	is := next.file.Node
	switch {
	case !sameCluster(is.Cluster, p.cluster):
		return is.Locate(config.ClusterTable, errors.New("[cluster] is another one than at the start: start the process again, packets flow on meanwhile"))
	case next.name != p.up.name:
		return is.Locate("name", fmt.Errorf("the data plane would be %s instead of %s, which is another one: "+
			"'culvert run' with this file starts it beside this process", next.name, p.up.name))
	case (len(next.on) == 0) != (p.up.inst == nil):
		return errors.New("the router's addresses move between loopback and interfaces: start the process again")
	}
	return nil
}

// apply brings a configuration that was checked into force, as a whole or, on an error, not at all. It tells whether a new
// program was loaded.
func (p *process) apply(ctx context.Context, next *up) (loaded bool, err error) {
	p.changes.Lock()
	defer p.changes.Unlock()
	p.watch.loop.Beat()
	opened, err := p.listen(next.file.Node)
	if err != nil {
		return false, err
	}
	if err := p.prepare(ctx, next); err != nil {
		opened.close()
		return false, err
	}
	p.watch.loop.Beat()
	former := p.up
	keep, err := p.fits(next)
	if err != nil {
		closeStages(next.prepared, p.log)
		opened.close()
		return false, err
	}
	var goOn, end []*server
	for _, s := range p.servers {
		if keep && !s.failed() && next.servedBy(s) {
			goOn = append(goOn, s)
		} else {
			end = append(end, s)
		}
	}
	p.watch.loop.Beat()
	p.endServers(stage.ErrSucceeded, end...)
	p.watch.loop.Beat()
	if keep {
		next.inst = former.inst
		err = p.recommit(ctx, next)
	} else {
		p.endKeepers()
		o := next.options(true)
		o.Former = former.inst
		err = next.attach(ctx, o)
	}
	if err != nil {
		closeStages(next.prepared, p.log)
		opened.close()
		p.resume(ctx, end, !keep)
		return false, err
	}
	p.watch.loop.Beat()
	p.succeed(ctx, next, goOn, !keep)
	p.cluster.again(ctx, p.up, p.log)
	p.awaitTaken(ctx)
	p.move(next.file.Node, opened)
	return !keep, nil
}

// prepare prepares the stages of a configuration. On an error nothing stays prepared.
func (p *process) prepare(ctx context.Context, next *up) error {
	start := stage.Start{Process: true, Log: p.log, Metrics: p.exported, Withheld: p.cluster.withheld}
	for _, plan := range next.plans {
		var prepared stage.Prepared
		var err error
		succeeding, ok := plan.(stage.Successor)
		if former := p.server(plan.Name()); ok && former != nil {
			prepared, err = succeeding.Succeed(ctx, start, former.Prepared)
		} else {
			prepared, err = plan.Prepare(ctx, start)
		}
		if err != nil {
			closeStages(next.prepared, p.log)
			return err
		}
		next.prepared = append(next.prepared, prepared)
	}
	return nil
}

// fits tells whether the program that runs does for a prepared configuration.
func (p *process) fits(next *up) (bool, error) {
	if p.up.inst == nil {
		return true, nil
	}
	for _, u := range p.up.inst.Unattached() {
		if u.Why == pins.Detached { // by hand: the file asks for it again
			return false, nil
		}
	}
	o := next.options(true)
	o.Parts = parts(next.prepared)
	return p.up.inst.Fits(o)
}

// servedBy tells whether a server does what the configuration asks of its stage.
func (u *up) servedBy(s *server) bool {
	for _, plan := range u.plans {
		if succeeding, ok := plan.(stage.Successor); ok && plan.Name() == s.Name() {
			return succeeding.ServedBy(s.Prepared)
		}
	}
	return false
}

// recommit commits all stages on the instance that runs.
func (p *process) recommit(ctx context.Context, next *up) error {
	if next.inst == nil {
		return nil
	}
	return next.inst.Recommit(func(h *datapath.Instance) error { return commit(ctx, h, next.prepared) })
}

// resume serves what was served before a change that has failed. interrupted says that the instance was not kept in step
// meanwhile.
func (p *process) resume(ctx context.Context, ended []*server, interrupted bool) {
	for _, s := range ended {
		if s.over && s.err != nil {
			continue // it was out before
		}
		p.servers[slices.Index(p.servers, s)] = p.serve(ctx, s.Prepared)
	}
	if interrupted {
		p.beginKeepers(ctx)
	}
}

// succeed serves a configuration that is in force in place of the one before. Servers in goOn go on; loaded says that there is
// a new program.
func (p *process) succeed(ctx context.Context, next *up, goOn []*server, loaded bool) {
	former := p.up
	p.up = next
	for n, prepared := range next.prepared {
		for _, s := range goOn {
			if s.Name() == prepared.Name() {
				p.close(prepared)
				next.prepared[n] = s.Prepared
			}
		}
	}
	// What the configuration has no more holds nothing that the others need, and may take long to close.
	var gone []stage.Prepared
	for _, s := range p.servers {
		switch {
		case slices.Contains(goOn, s):
		case planOf(next.plans, s.Name()) == nil:
			gone = append(gone, s.Prepared)
		default:
			p.close(s.Prepared)
		}
	}
	p.now.Store(next)
	if !loaded && former.file.Node.Detached != next.file.Node.Detached {
		p.endKeepers()
		p.beginKeepers(ctx)
	}
	p.states.succeed(next, goOn)
	var servers []*server
	for _, prepared := range next.prepared {
		at := slices.IndexFunc(goOn, func(s *server) bool { return s.Prepared == prepared })
		if at >= 0 {
			servers = append(servers, goOn[at])
			continue
		}
		servers = append(servers, p.serve(ctx, prepared))
	}
	p.servers = servers
	p.watch.only(servers)
	if loaded {
		p.metrics.show(next.inst)
		p.beginKeepers(ctx)
	}
	closeStages(gone, p.log)
	if loaded {
		former.inst.Close()
	}
	p.level.Set(next.file.Node.Level())
}

// takenWithin bounds how long a reload waits for stages to take over. It is a variable for tests.
var takenWithin = 10 * time.Second

// awaitTaken waits until all stages have taken over from those of before. Who is told that a key is gone relies on that.
func (p *process) awaitTaken(ctx context.Context) {
	limit := time.NewTimer(takenWithin)
	defer limit.Stop()
	for _, s := range p.servers {
		t, ok := s.Prepared.(stage.Taker)
		if !ok {
			continue
		}
		select {
		case <-t.Taken():
		case <-s.done:
		case <-ctx.Done():
			return
		case <-limit.C:
			p.log.Warn("a stage takes long to take over: what it did before goes on until then", "stage", s.Name())
			return
		}
		p.watch.loop.Beat()
	}
}

// close closes a stage that is not served any more.
func (p *process) close(prepared stage.Prepared) { closeStages([]stage.Prepared{prepared}, p.log) }

// logReload logs the notes of a reload that a signal has asked for: nobody waits for its answer.
func (p *process) logReload(r *api.Reloaded, err error) {
	if err != nil {
		return // it is in the log already
	}
	for _, note := range r.Notes {
		p.log.Warn(note)
	}
}

func closeListener(l net.Listener) {
	if l != nil {
		l.Close()
	}
}
