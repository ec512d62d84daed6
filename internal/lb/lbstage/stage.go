// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
	"time"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/host/netdev"
	"culvert/internal/host/pulse"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/peers"
	"culvert/internal/stage"
)

// Stage is the load balancer.
type Stage struct{}

// Name implements stage.Stage.
func (Stage) Name() string { return lbplane.Stage }

// Table implements stage.Stage.
func (Stage) Table() config.Table { return new(Table) }

// Forgets implements stage.Forgetter.
func (Stage) Forgets(without stage.Plan) string {
	if p, ok := without.(*Plan); ok && p.On() {
		return "" // because of VIPs made by hand
	}
	return "the flow table and the counters of VIPs and backends"
}

// Plan implements stage.Stage. A file without [lb] has a plan too: VIPs made by hand are kept, and those of an earlier file are
// deleted.
func (Stage) Plan(f stage.File) (stage.Plan, error) { return Compile(f) }

// Name implements stage.Plan.
func (p *Plan) Name() string { return Stage{}.Name() }

// On returns whether the load balancer is on: because of the file or, once Check has been called, of VIPs made by hand.
func (p *Plan) On() bool { return p.file != nil || p.kept }

// State returns the state of the file, without what was made by hand.
func (p *Plan) State() lb.State { return p.state }

// Prepare implements stage.Plan.
func (p *Plan) Prepare(_ context.Context, start stage.Start) (stage.Prepared, error) {
	next, err := p.prepare(start, nil)
	if err != nil {
		return nil, err
	}
	return next, next.openSockets()
}

// prepare is Prepare for a plan that follows former, nil for none.
func (p *Plan) prepare(start stage.Start, former *Plan) (*prepared, error) {
	made, err := p.seed(start.Log, former)
	if err != nil {
		return nil, err
	}
	return &prepared{
		Plan: p, start: start, former: former, madeSeed: made, service: newService(),
		turns:  pulse.New("the loop that keeps the load balancer in step", turnsWithin),
		checks: pulse.New("the loop of a health check", turnsWithin),
	}, nil
}

// ServedBy implements stage.Successor. VIPs, backends and checks reach the former stage through the maps:
// only BGP, peers and the sources of backends do not.
func (p *Plan) ServedBy(former stage.Prepared) bool {
	f, ok := former.(*prepared)
	return ok && p.On() == f.On() && reflect.DeepEqual(p.bgp, f.bgp) && reflect.DeepEqual(p.peers, f.peers) &&
		reflect.DeepEqual(p.sources, f.sources)
}

// Succeed implements stage.Successor. The BGP sessions go on with the options of the plan once Serve begins.
func (p *Plan) Succeed(ctx context.Context, start stage.Start, former stage.Prepared) (stage.Prepared, error) {
	f, ok := former.(*prepared)
	if !ok {
		return p.Prepare(ctx, start)
	}
	next, err := p.prepare(start, f.Plan)
	if err != nil {
		return nil, err
	}
	f.service.hold()
	next.service = f.service
	if err := next.openSockets(); err != nil {
		return nil, errors.Join(err, f.service.release())
	}
	return next, nil
}

// CheckHost implements stage.HostChecker.
func (p *Plan) CheckHost(h stage.Host) error {
	if p.file == nil {
		return nil
	}
	p.noteBGP(h.Note)
	p.noteSources(h.Note)
	if err := p.checkPeers(h); err != nil {
		return err
	}
	_, err := p.seedText()
	return err
}

// CheckPort implements stage.PortChecker.
func (p *Plan) CheckPort(name string) error {
	if !p.On() {
		return nil
	}
	return netdev.CheckTags(name)
}

// Summary implements stage.Summarizer.
func (p *Plan) Summary() []stage.Count {
	backends, neighbors := 0, 0
	for _, v := range p.state.VIPs {
		backends += len(v.Backends)
	}
	if p.bgp != nil {
		neighbors = len(p.bgp.Neighbors)
	}
	return []stage.Count{
		{Key: "vips", One: "VIP", N: len(p.state.VIPs)}, {Key: "backends", One: "backend", N: backends},
		{Key: "sources", One: "source", N: len(p.sources)}, {Key: "bgp_neighbors", One: "BGP neighbor", N: neighbors},
	}
}

// Check implements stage.Plan. It returns an error if the file's VIPs conflict with those made by hand or with services that
// SYN cookies protect.
func (p *Plan) Check(s stage.Situation) error {
	now, options, err := running(s.Running)
	if err != nil {
		return err
	}
	if p.file == nil {
		if err := p.keep(now, options); err != nil || !p.kept {
			return err
		}
	}
	merged, err := p.merge(now)
	if err != nil {
		return err
	}
	return checkProtected(s, merged.VIPs)
}

// running returns the state of the load balancer of a data plane.
func running(inst *datapath.Instance) (s lb.State, o lbplane.Options, err error) {
	if inst == nil || lbplane.OptionsOf(inst) == nil {
		return s, o, nil
	}
	plane, err := lbplane.View(inst)
	if err != nil {
		return s, o, err
	}
	s, err = lb.Load(plane)
	return s, plane.Options(), err
}

// keep plans for VIPs made by hand if the file has no [lb].
func (p *Plan) keep(now lb.State, options lbplane.Options) error {
	merged, err := lb.Merge(now, lb.State{})
	if err != nil {
		return err
	}
	if len(merged.VIPs) == 0 {
		p.gone = lb.Gone(now, merged)
		return nil
	}
	// Ring size, seed and outer sources stay as they are, too.
	p.kept, p.options, p.state = true, options, lb.State{Source4: now.Source4, Source6: now.Source6}
	return nil
}

// prepared is a plan with the seed that it uses.
type prepared struct {
	*Plan
	start stage.Start
	inst  *datapath.Instance
	// madeSeed is a seed of this machine that is in no file, a new one or that of former, which is the plan before or nil. It is
	// written once the start cannot be refused any more. It may be "".
	madeSeed string
	former   *Plan
	// turns is the pulse of the loop that keeps the data plane in step, and checks that of the health checks.
	turns, checks *pulse.Pulse
	service       *service
	sockets       *peers.Sockets // for the peers, until Serve takes them; nil if there are none, or the service has them
	release       sync.Once
}

// turnsWithin bounds the turns of that loop, which come 10 times a second.
const turnsWithin = 20 * time.Second

// Part implements stage.Prepared.
func (p *prepared) Part() datapath.Part {
	if !p.On() {
		return nil
	}
	options := p.options
	options.Fill = lb.Fill(p.state)
	return lb.NewPart(options)
}

// Commit implements stage.Prepared. If rest fails the old state comes back, and backends keep their numbers and next hops,
// and so their flows.
func (p *prepared) Commit(_ context.Context, inst *datapath.Instance, rest func() error) error {
	p.inst = inst
	gone := p.gone
	then := func() error {
		if err := keepSeed(p.madeSeed, p.former, p.start.Log); err != nil {
			return err
		}
		return rest()
	}
	commit := then
	if p.On() {
		commit = func() error {
			return lb.EditThen(inst, func(s *lb.State) error {
				merged, err := p.merge(*s)
				gone = lb.Gone(*s, merged)
				*s = merged
				return err
			}, then)
		}
	}
	if err := commit(); err != nil {
		return err
	}
	if len(gone) > 0 {
		p.start.Log.Info("the configuration file names these no more: they are taken out of the load balancer", "gone", strings.Join(gone, ", "))
	}
	if p.On() {
		return nil
	}
	// Nothing is served any more. If there are BGP sessions, Serve withdraws everything.
	p.service.mu.Lock()
	p.service.off = true
	p.service.mu.Unlock()
	return nil
}

// Serve implements stage.Prepared.
func (p *prepared) Serve(ctx context.Context, ready func()) error {
	if !p.On() {
		p.service.retire()
		return nil
	}
	ready()
	sockets := p.sockets
	p.sockets = nil
	return p.service.run(ctx, lb.Options{Instance: p.inst, Log: p.start.Log, Withheld: p.start.Withheld, Turns: p.turns, Checks: p.checks}, p.Plan, sockets)
}

// Settle resolves the next hops of the backends of a load balancer once, and writes a line to out for those that it could not
// resolve.
func Settle(ctx context.Context, inst *datapath.Instance, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	missing, err := lb.Resolve(ctx, inst)
	if err != nil {
		return err
	}
	for _, a := range missing {
		fmt.Fprintf(out, "no way to backend %s yet: once it answers, attach again\n", a)
	}
	return nil
}

// settleTime is the longest time to wait for neighbors to answer if no process runs.
const settleTime = 3 * time.Second

// Alive implements stage.Watched.
func (p *prepared) Alive() error { return pulse.Alive(p.turns, p.checks) }

// Settle implements stage.Prepared.
func (p *prepared) Settle(ctx context.Context) error {
	if !p.On() {
		return nil
	}
	for _, s := range p.sources {
		fmt.Fprintf(p.start.Out, "source %q of VIP %s is not asked without a process: 'culvert run' does that\n", s.name, s.vip)
	}
	return Settle(ctx, p.inst, p.start.Out)
}

// Close implements stage.Prepared.
func (p *prepared) Close() (err error) {
	p.release.Do(func() {
		if p.sockets != nil {
			err = p.sockets.Close()
		}
		err = errors.Join(err, p.service.release())
	})
	return err
}
