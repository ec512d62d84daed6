// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"culvert/internal/cluster/lastgood"
	"culvert/internal/config/inforce"
	"culvert/internal/datapath"
	"culvert/internal/events"
	"culvert/internal/host/pulse"
	"culvert/internal/stage"
)

// process serves a data plane and its stages, and brings other configurations into force while it runs. Its fields belong to the
// goroutine of run.
type process struct {
	// read reads the configuration again.
	read func(*lastgood.Set) (stage.File, error)
	// cluster is nil without one.
	cluster *member
	log     *slog.Logger
	// level is that of log.
	level *slog.LevelVar

	up *up
	// now is up, for the goroutines of keepers.
	now     atomic.Pointer[up]
	states  *stageStates
	metrics *metricsServer
	web     *webPage
	// exported has the process's own metrics.
	exported *exported
	servers  []*server
	keepers  *keepers
	// ended gets each server whose Serve has returned by itself, and failed what ends the process.
	ended  chan *server
	failed chan error
	calls  chan *call
	// changes is held by a reload, and for reading by the changes by hand that the process carries out.
	changes sync.RWMutex
	watch   *watch
	// events has what log gets, for programs.
	events *events.Hub
	trial  *trial // nil unless a reload waits for its confirmation
}

// newProcess returns a process that serves a configuration which was brought up.
func newProcess(u *up, read func(*lastgood.Set) (stage.File, error), e *exported, log *slog.Logger, level *slog.LevelVar) *process {
	p := &process{
		read: read, cluster: u.cluster, exported: e, log: log, level: level, up: u, ended: make(chan *server), failed: make(chan error, 1), calls: make(chan *call),
		watch: newWatch(log), events: events.NewHub(),
	}
	p.now.Store(u)
	p.metrics = newMetrics(e, p.fail, log.Error)
	p.web = newWebPage(p)
	p.metrics.show(u.inst)
	return p
}

// run serves until ctx ends, the data plane is detached, or no stage is left that needs the process.
func (p *process) run(ctx context.Context) error {
	p.states = newStages(p.up, p.log)
	defer p.states.close()
	p.web.publish(p.states.web)
	defer p.web.publish(func(*inforce.Web) {})
	defer p.watch.begin(p.states)()
	defer p.watch.loop.End() // the end counts as a turn: a stage may not end
	hangup := make(chan os.Signal, 1)
	signal.Ignore(syscall.SIGHUP) // without a moment in which it would end the process
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	member := p.serveCluster(serving)
	defer member.Wait()
	control, shown := p.serveControl(serving), p.serveShow(serving)
	defer control.Wait()
	defer shown.Wait()
	defer stop()
	defer p.metrics.Close()
	defer p.web.Close()
	shown.Go(func() { p.watchLosses(serving) })
	p.begin(ctx)
	err := p.loop(ctx, hangup)
	stop()
	p.endKeepers()
	p.endServers(context.Canceled, p.servers...)
	if ctx.Err() != nil {
		p.up.logStays(p.log)
		return nil
	}
	if errors.Is(err, errDetached) {
		return nil
	}
	return err
}

// begin serves all that the configuration asks for.
func (p *process) begin(ctx context.Context) {
	p.beginKeepers(ctx)
	for _, prepared := range p.up.prepared {
		p.servers = append(p.servers, p.serve(ctx, prepared))
	}
}

// loop handles what happens until the process is to end.
func (p *process) loop(ctx context.Context, hangup <-chan os.Signal) error {
	tick := time.NewTicker(loopPeriod)
	defer tick.Stop()
	for {
		p.watch.loop.Beat()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case err := <-p.failed:
			return err
		case s := <-p.ended:
			if err := p.stageEnded(s); err != nil {
				return err
			}
		case c := <-p.calls:
			c.answer(p.handle(ctx, c.request))
		case <-hangup:
			p.logReload(p.handle(ctx, Request{}))
		case <-p.trial.over():
			p.goBack(ctx)
		}
	}
}

// server serves one stage.
type server struct {
	stage.Prepared
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when Serve has returned
	err    error         // of Serve
	over   bool          // whether Serve has returned by itself
}

// failed returns whether the process has seen that the stage is out.
func (s *server) failed() bool { return s.over && s.err != nil }

// serve starts to serve a stage.
func (p *process) serve(ctx context.Context, prepared stage.Prepared) *server {
	ctx, cancel := context.WithCancelCause(ctx)
	p.watch.serves(prepared)
	s := &server{Prepared: prepared, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.err = s.Serve(ctx, func() {
			if ctx.Err() == nil {
				p.states.set(s.Name(), datapath.StageReady, nil)
			}
		})
		if ctx.Err() != nil {
			return
		}
		select {
		case p.ended <- s:
		case <-ctx.Done():
		}
	}()
	return s
}

// stageEnded notes that the Serve of a stage has returned by itself. If that is an error, the other stages go on. stageEnded
// returns an error once none is left that needs the process.
func (p *process) stageEnded(s *server) error {
	s.over = true
	if s.err == nil { // it needs no process
		p.states.set(s.Name(), datapath.StageReady, nil)
	} else {
		p.states.set(s.Name(), datapath.StageOut, s.err)
		p.log.Error("a stage is out: its packets go to the kernel, or where they went before; 'culvert reload' tries it again",
			"stage", s.Name(), "err", s.err)
	}
	var failed error
	for _, other := range p.servers {
		if !other.over {
			return nil
		}
		if other.err != nil {
			failed = other.err
		}
	}
	return failed
}

// slowEnd is how long stages may take to end before the log says which ones are waited for. It is a variable for tests.
var slowEnd = 5 * time.Second

// endServers ends the Serve of stages at the same time.
func (p *process) endServers(cause error, servers ...*server) {
	for _, s := range servers {
		s.cancel(cause)
	}
	slow := time.NewTimer(slowEnd)
	defer slow.Stop()
	for _, s := range servers {
		select {
		case <-s.done:
			continue
		case <-slow.C: // comes once
			p.log.Warn("stages take long to end, and nothing else is done until they have", "stages", running(servers))
		}
		<-s.done
	}
}

// running names the servers that have not ended.
func running(servers []*server) string {
	var names []string
	for _, s := range servers {
		select {
		case <-s.done:
		default:
			names = append(names, s.Name())
		}
	}
	return strings.Join(names, ", ")
}

// server returns the server of a stage, nil if there is none.
func (p *process) server(name string) *server {
	for _, s := range p.servers {
		if s.Name() == name {
			return s
		}
	}
	return nil
}

// keepers keep an instance in step with the host's interfaces.
type keepers struct {
	stop context.CancelFunc
	work sync.WaitGroup
}

// beginKeepers starts what keeps the instance, if there is one, in step with the interfaces.
func (p *process) beginKeepers(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	p.keepers = &keepers{stop: stop}
	if p.up.inst == nil {
		return
	}
	inst, follower := p.up.inst, p.follower()
	for _, do := range []func() error{
		func() error { return refresh(ctx, inst, p.watch.refresh, p.log) },
		func() error { return followPorts(ctx, follower, p.watch.ports) },
	} {
		p.keepers.work.Go(func() {
			if err := do(); ctx.Err() == nil {
				p.fail(err)
			}
		})
	}
}

// fail ends the process.
func (p *process) fail(err error) {
	select {
	case p.failed <- err:
	default: // it is about to end already
	}
}

// endKeepers ends what beginKeepers has started.
func (p *process) endKeepers() {
	p.keepers.stop()
	p.keepers.work.Wait()
}

// logStays logs that the data plane stays when the process is asked to end.
func (u *up) logStays(log *slog.Logger) {
	if u.inst == nil || u.inst.Removed() {
		return
	}
	if on := u.inst.AttachedNow(); len(on) > 0 {
		log.Info("the process ends, and the data plane stays: packets go on by it, and the next process takes it over",
			"interfaces", on, "off", "culvert detach "+strings.Join(on, " "))
	}
}

// refreshPeriod is how often the state of interfaces is read that changes without a notification.
const refreshPeriod = time.Second

// refresh refreshes an instance until ctx ends. It logs an error unless it equals the one before.
func refresh(ctx context.Context, inst *datapath.Instance, turns *pulse.Pulse, log *slog.Logger) error {
	tick := time.NewTicker(refreshPeriod)
	defer tick.Stop()
	defer turns.End()
	failed, stay := "", make(map[string]bool)
	for {
		turns.Beat()
		logStays(inst, stay, log)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		err := inst.Refresh()
		if err != nil && err.Error() != failed {
			failed = err.Error()
			log.Error("the fast path does not follow the host", "err", err)
		}
	}
}

// follower returns the follower of the data plane with the settings of the configuration in force.
func (p *process) follower() *follower {
	f := &follower{inst: p.up.inst, log: p.log, detached: p.up.file.Node.Detached}
	f.restore = func() (err error) {
		for _, prepared := range p.now.Load().prepared {
			if r, ok := prepared.(stage.Restorer); ok {
				err = errors.Join(err, r.Restore(f.inst))
			}
		}
		return err
	}
	f.checkPort = func(name string) error { return checkPort(p.now.Load().plans, name) }
	return f
}
