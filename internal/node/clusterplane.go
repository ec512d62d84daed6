// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"culvert/internal/cluster"
	"culvert/internal/cluster/agent"
	"culvert/internal/cluster/lastgood"
	"culvert/internal/cluster/urgent"
	"culvert/internal/config"
	"culvert/internal/config/inforce"
	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/lb/lbview"
)

// clusterPlane is the data plane of a process, for its agent.
type clusterPlane struct {
	*process
	serving context.Context // ends when the process serves no more

	mu      sync.Mutex
	rates   map[string]portCount
	counted time.Time
	flows   uint64    // that have begun, when they were looked at last
	quiet   time.Time // since when none has begun
}

// serveCluster starts the agent of a node that is part of a cluster. It ends with ctx.
func (p *process) serveCluster(ctx context.Context) *sync.WaitGroup {
	var work sync.WaitGroup
	m := p.cluster
	if m == nil {
		return &work
	}
	o := m.options(p.log)
	o.Plane = &clusterPlane{process: p, serving: ctx}
	o.Changed = p.clusterChanged
	m.running = func() *lastgood.Set { return p.now.Load().set }
	m.agent = agent.New(o)
	m.view = m.agent.View
	p.exported.cluster.set(m)
	p.clusterChanged()
	work.Go(func() { m.agent.Run(ctx) })
	return &work
}

// Run implements agent.Plane: it is a reload with other documents.
func (p *clusterPlane) Run(_ context.Context, set *lastgood.Set) error {
	_, err := p.ask(p.serving, Request{set: set, by: fmt.Sprintf("revision %d of cluster %s", set.Revision, set.Cluster)})
	return firstOf(err)
}

// firstOf returns the first of several errors in the order of their positions, and says how many there are.
func firstOf(err error) error {
	all := config.Sorted(err)
	if len(all) < 2 {
		return err
	}
	return fmt.Errorf("%w (and %d more)", all[0], len(all)-1)
}

// errNoPlane says that there is nothing to change.
var errNoPlane = errors.New("this node has no data plane")

// Urgent implements agent.Plane.
func (p *clusterPlane) Urgent(ctx context.Context, changes []agent.Held) map[string]error {
	p.changes.RLock() // a reload goes first or comes after
	defer p.changes.RUnlock()
	inst := p.now.Load().inst
	if inst == nil {
		return urgent.Without(changes, errNoPlane)
	}
	before := p.cluster.keeper.Held()
	failed := p.cluster.keeper.Bring(ctx, inst, changes)
	after := p.cluster.keeper.Held()
	for _, h := range after {
		if !heldIn(before, h) {
			p.log.Info("an urgent change is in force", "id", h.ID, "verb", h.Words, "by", h.By)
		}
	}
	for _, h := range before {
		if !heldIn(after, h) {
			p.log.Info("an urgent change has ended: what was there before is back", "id", h.ID, "verb", h.Words)
		}
	}
	return failed
}

func heldIn(all []agent.Held, h agent.Held) bool {
	return slices.ContainsFunc(all, func(o agent.Held) bool { return o.ID == h.ID })
}

// quietFor is how long no new flow has to come until the node may be stopped: neighbors that have heard of the withdrawal send none.
const quietFor = 3 * time.Second

// Maintain implements agent.Plane. A file in the state directory has a restarted process go on with it.
func (p *clusterPlane) Maintain(_ context.Context, on bool) (string, error) {
	m := p.cluster
	if on != m.maintained.Load() {
		if err := m.markMaintained(on); err != nil {
			return "", err
		}
		m.maintained.Store(on)
		p.mu.Lock()
		p.quiet = time.Now()
		p.mu.Unlock()
	}
	if !on {
		return "", nil
	}
	p.changes.RLock()
	defer p.changes.RUnlock()
	inst := p.now.Load().inst
	if inst == nil {
		return cluster.MaintainSafe, nil
	}
	r, err := lbview.ReportOf(inst)
	if err != nil {
		return cluster.MaintainWithdrawing, err
	}
	if r == nil || r.BGPKnown && len(r.BGP) == 0 {
		return cluster.MaintainNothing, nil
	}
	var flows uint64
	announced := false
	for _, v := range r.VIPs {
		flows += v.Flows
	}
	for _, s := range r.BGP {
		announced = announced || len(s.Announced) > 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if flows != p.flows || announced || p.quiet.IsZero() {
		p.flows, p.quiet = flows, time.Now()
	}
	if !r.BGPKnown || time.Since(p.quiet) < quietFor {
		return cluster.MaintainWithdrawing, nil
	}
	return cluster.MaintainSafe, nil
}

// markMaintained notes on disk whether the node is in maintenance.
func (m *member) markMaintained(on bool) error {
	path := m.path(maintainFile)
	if !on {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("ending the maintenance of the node: %w", err)
		}
		return nil
	}
	if err := lastgood.WriteSealed(path, nil); err != nil {
		return fmt.Errorf("noting the maintenance of the node: %w", err)
	}
	return nil
}

// State implements agent.Plane.
func (p *clusterPlane) State(s *cluster.State) {
	bad := func(format string, args ...any) {
		s.Health, s.Problems = cluster.HealthBad, append(s.Problems, fmt.Sprintf(format, args...))
	}
	s.Stages = make(map[string]string)
	for _, st := range p.states.configured() {
		s.Stages[st.Stage] = st.State
		if st.State == datapath.StageOut {
			bad("stage %s is out: %s", st.Stage, st.Why)
		}
	}
	s.Problems = append(s.Problems, p.cluster.problems.all()...)
	p.changes.RLock()
	defer p.changes.RUnlock()
	inst := p.now.Load().inst
	if inst == nil {
		return
	}
	for _, u := range inst.Unattached() {
		s.Problems = append(s.Problems, fmt.Sprintf("the data plane is not on %s", u.Interface))
	}
	ports, err := inst.Ports()
	if err != nil {
		bad("the counters cannot be read: %v", err)
	}
	s.Interfaces = p.interfaces(ports)
	if err := addFilter(s, inst); err != nil {
		s.Problems = append(s.Problems, fmt.Sprintf("the filter cannot be read: %v", err))
	}
	r, err := lbview.ReportOf(inst)
	if err != nil {
		bad("the load balancer cannot be read: %v", err)
	}
	if r != nil {
		addBalancer(s, r, bad)
	}
}

// addFilter adds the filter to the stages of a node whose configuration has none, while urgent changes or verbs have given it one.
func addFilter(s *cluster.State, inst *datapath.Instance) error {
	if _, ok := s.Stages[filterplane.Stage]; ok {
		return nil
	}
	f, err := filterplane.Read(inst)
	if err == nil && len(f.Rules)+len(f.Services) > 0 {
		s.Stages[filterplane.Stage] = datapath.StageReady
	}
	return err
}

// addBalancer adds VIPs and backends to a state.
func addBalancer(s *cluster.State, r *lbview.Report, bad func(string, ...any)) {
	s.Backends, s.Sources = make(map[string]string), make(map[string]string)
	for _, session := range r.BGP {
		for _, prefix := range session.Announced {
			if a := prefix.Addr().String(); session.Established() && !slices.Contains(s.Announced, a) {
				s.Announced = append(s.Announced, a)
			}
		}
	}
	slices.Sort(s.Announced)
	if len(r.VIPs) > 0 {
		s.Seed, s.RingSize = r.SeedID, r.RingSize
	}
	for _, v := range r.VIPs {
		if v.State == lbview.Down && len(v.Backends) > 0 {
			bad("VIP %s: none of its backends can be used", v.Service)
		}
		for _, o := range v.Sources {
			if o.Troubled() {
				s.Sources[o.Name+" of VIP "+v.Service] = o.State + ": " + o.Why
			}
		}
		for _, b := range v.Backends {
			why := ""
			switch {
			case b.Problem != "":
				why = b.Problem
			case b.Health.State == "down":
				why = "down: " + b.Health.Why
			case b.Drained:
				why = "drained"
			}
			if why != "" {
				s.Backends[v.Service+" "+b.Addr] = why
			}
		}
	}
}

// clusterChanged publishes how the node stands with its cluster. Callers that come at the same time wait for each other: otherwise what one has
// seen before could be published behind what another one has seen since.
func (p *process) clusterChanged() {
	m := p.cluster
	m.publishing.Lock()
	defer m.publishing.Unlock()
	v := m.view()
	m.endProblems(v, p.log)
	p.states.cluster(m.standing(v))
}

// standing returns how the node stands with its cluster, for status and doctor.
func (m *member) standing(v agent.View) *inforce.Cluster {
	c := &inforce.Cluster{
		Name: m.table.Name, Node: m.table.Node, Roles: m.table.Roles, Revision: v.Revision, Wanted: v.Wanted, Refused: v.Refused,
		Reached: v.Reached, Since: v.Since, Problem: v.Problem, Urgent: v.Urgent, UrgentFailed: v.UrgentFailed, Maintain: v.Maintain,
		Twin: v.Twin, Second: v.Second, NotReported: v.ReportProblem, Denied: v.Denied, StateDir: m.table.StateDir, StateProblems: m.problems.all(),
	}
	for _, problem := range []string{v.KeepProblem, v.OverProblem} {
		if problem != "" {
			c.StateProblems = append(c.StateProblems, problem)
		}
	}
	if m.table.TLS != nil {
		c.Certificate = m.table.TLS.Cert
	}
	return c
}
