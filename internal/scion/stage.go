// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"culvert/internal/config"
	"culvert/internal/host/netdev"
	"culvert/internal/host/tcplisten"
	"culvert/internal/scion/scionplane"
	"culvert/internal/stage"
)

// Stage is the SCION border router.
type Stage struct{}

// Name implements stage.Stage.
func (Stage) Name() string { return scionplane.Stage }

// Table implements stage.Stage.
func (Stage) Table() config.Table { return new(Table) }

// Forgets implements stage.Forgetter.
func (Stage) Forgets(stage.Plan) string {
	return "the fast path's counters of its links, their BFD sessions and the keys loaded by hand"
}

// Plan implements stage.Stage. It also reads the files of the reference router.
func (s Stage) Plan(f stage.File) (stage.Plan, error) {
	t := stage.Table[*Table](f, s)
	if t == nil {
		return nil, nil
	}
	p, err := newPlan(*t)
	if err != nil {
		return nil, err
	}
	p.beside, p.generic = len(f.Node.Tables) > 1, f.Node.Mode == config.ModeGeneric
	return p, p.router.apartFrom(f.Node)
}

// apartFrom returns an error if the page to look at has an address of the router's own.
func (r *Router) apartFrom(n *config.Node) error {
	addresses, web := r.httpAddresses(), n.WebAddress()
	for _, field := range slices.Sorted(maps.Keys(addresses)) {
		if config.SameListener(web, addresses[field]) {
			return n.In("web").Locate("listen", fmt.Errorf("listen = %q is the address of %s = %q in %s: use another port", web, field, addresses[field], r.Path))
		}
	}
	return nil
}

// plan is a [scion] table with the content of the router's own files.
type plan struct {
	router *Router
	file   Table
	// beside tells whether the file turns other stages on, too.
	beside bool
	// generic tells whether the programs run in generic mode.
	generic bool
	// interfaces are those that the data plane is to be attached to.
	interfaces []string
}

func newPlan(file Table) (*plan, error) {
	r, err := LoadTable(&file)
	if err != nil {
		return nil, err
	}
	r.Datapath.BFDMinTTL, r.fragment = uint8(file.BFDMinTTL), file.Fragment()
	return &plan{router: r, file: file}, nil
}

// Name implements stage.Plan.
func (p *plan) Name() string { return Stage{}.Name() }

// Place implements stage.Placer. The name is the router's ID, and the interfaces are those with the router's underlay
// addresses.
func (p *plan) Place(interfaces []string) (name string, on []string, err error) {
	if len(interfaces) > 0 {
		return p.router.ID(), interfaces, p.router.CheckInterfaces(interfaces, p.beside)
	}
	on, err = p.router.Interfaces()
	return p.router.ID(), on, err
}

// Prepare implements stage.Plan.
func (p *plan) Prepare(ctx context.Context, start stage.Start) (stage.Prepared, error) {
	if start.Process {
		return p.prepare(ctx, start.Metrics, nil)
	}
	// A process whose interfaces were detached no longer holds the data plane, but still holds the lock and the sockets.
	lock, err := TakeLock(p.router.ID())
	if err != nil {
		return nil, err
	}
	return &unattended{plan: p, start: start, lock: lock}, nil
}

// CheckHost implements stage.HostChecker.
func (p *plan) CheckHost(h stage.Host) error {
	var errs config.Errors
	errs.Add(scionplane.NewPart(p.router.Datapath).Check())
	p.router.noteOverlaps(h.Note)
	if !h.Process {
		return errs.Err()
	}
	errs.Add(p.router.loadKeys(true))
	errs.Add(checkSockets(p.router, h.Served))
	addresses := p.router.httpAddresses()
	for _, field := range slices.Sorted(maps.Keys(addresses)) {
		if addresses[field] == "" {
			continue
		}
		if err := tcplisten.Check(addresses[field], h.Served); err != nil {
			errs.Add(badField(p.router.Path)(field, "%w", err))
		}
	}
	return errs.Err()
}

// CheckPort implements stage.PortChecker.
func (p *plan) CheckPort(name string) error { return netdev.CheckTags(name) }

// Summary implements stage.Summarizer.
func (p *plan) Summary() []stage.Count {
	external, siblings := 0, 0
	for _, l := range p.router.Datapath.Links {
		switch l.Scope {
		case scionplane.ScopeExternal:
			external++
		case scionplane.ScopeSibling:
			siblings++
		}
	}
	return []stage.Count{{Key: "links", One: "link", N: external}, {Key: "siblings", One: "sibling", N: siblings}}
}

// Check implements stage.Plan.
func (p *plan) Check(s stage.Situation) error {
	p.interfaces = s.Interfaces
	if s.Running == nil || !p.router.Scheduled() || len(scionplane.Of(s.Running).Config().Links) == 0 {
		return nil
	}
	if err := scionplane.Of(s.Running).CheckSchedule(p.router.Keys); err != nil {
		return p.router.schedule[0].Locate("", err)
	}
	return nil
}

// Files implements stage.Reader: the reference router's own files, and keys that follow a schedule.
func (p *plan) Files() []string {
	files := []string{p.router.Path, p.router.TopologyPath()}
	for _, k := range p.router.schedule {
		files = append(files, k.File)
	}
	if !p.router.Scheduled() {
		key0, key1 := p.router.keyPaths()
		files = append(files, key0, key1)
	}
	return files
}
