// SPDX-License-Identifier: Apache-2.0

package filterstage

import (
	"context"
	"net/netip"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/filter/filterplane"
	"culvert/internal/host/hostaddr"
	"culvert/internal/stage"
)

// Stage is the packet filter.
type Stage struct{}

// Name implements stage.Stage.
func (Stage) Name() string { return filterplane.Stage }

// Table implements stage.Stage.
func (Stage) Table() config.Table { return new(Table) }

// Plan implements stage.Stage. A file without [filter] has a plan too: what an earlier file has left goes.
func (Stage) Plan(f stage.File) (stage.Plan, error) { return Compile(f) }

// Name implements stage.Plan.
func (p *Plan) Name() string { return filterplane.Stage }

// Prepare implements stage.Plan.
func (p *Plan) Prepare(_ context.Context, start stage.Start) (stage.Prepared, error) {
	return &prepared{p, start}, nil
}

// Check implements stage.Plan: the file's filter has to go together with what was made by hand.
func (p *Plan) Check(s stage.Situation) error {
	if err := p.reaches(s.Interfaces); err != nil {
		return err
	}
	now, err := running(s.Running)
	if err != nil {
		return err
	}
	_, err = p.merge(now)
	return err
}

// running is the filter of a data plane, none for none.
func running(inst *datapath.Instance) (filterplane.Filter, error) {
	if inst == nil {
		return filterplane.Filter{}, nil
	}
	return filterplane.Read(inst)
}

// Protected are the services that will be protected by SYN cookies: those made by hand, and the file's.
func (p *Plan) Protected(inst *datapath.Instance) (byHand, inFile []netip.AddrPort, err error) {
	return p.services(inst, func(filterplane.Service) bool { return true })
}

// Forwarded are those of them that are behind this host, as they were given.
func (p *Plan) Forwarded(inst *datapath.Instance) (byHand, inFile []netip.AddrPort, err error) {
	return p.services(inst, func(s filterplane.Service) bool { return s.Forwarded })
}

func (p *Plan) services(inst *datapath.Instance, is func(filterplane.Service) bool) (byHand, inFile []netip.AddrPort, err error) {
	now, err := running(inst)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range now.Services {
		if !s.File && is(s) {
			byHand = append(byHand, s.Addr)
		}
	}
	for _, s := range p.filter.Services {
		if is(s) {
			inFile = append(inFile, s.Addr)
		}
	}
	return byHand, inFile, nil
}

// LocateService puts the position of a protected service in the file in front of an error.
func (p *Plan) LocateService(service netip.AddrPort, err error) error {
	return p.locate(&filter.FileError{Table: filter.TableProtect, Name: service.String(), Part: "address", Err: err})
}

// prepared is a filter that needs nothing but a data plane.
type prepared struct {
	*Plan
	start stage.Start
}

// Part implements stage.Prepared.
func (p *prepared) Part() datapath.Part { return filterplane.NewPart() }

// Commit implements stage.Prepared. If rest fails, the engine puts the program in front back.
func (p *prepared) Commit(_ context.Context, inst *datapath.Instance, rest func() error) error {
	if err := p.Apply(inst, p.start.Log); err != nil {
		return err
	}
	if err := rest(); err != nil {
		return err
	}
	p.tellElsewhere()
	return nil
}

// tellElsewhere says which services are protected as if they were on this host, and are not: no connection comes about.
func (p *prepared) tellElsewhere() {
	var local []netip.AddrPort
	for _, s := range p.filter.Services {
		if !s.Forwarded {
			local = append(local, s.Addr)
		}
	}
	not, _ := hostaddr.Elsewhere(local) // doctor says why they cannot be seen
	for _, s := range not {
		p.start.Log.Warn("this host does not have the address of a protected service: no connection to it comes about until it has; "+
			"for one behind this host set forwarded = true", "service", s)
	}
}

// Restore implements stage.Restorer.
func (p *prepared) Restore(inst *datapath.Instance) error { return p.Apply(inst, p.start.Log) }

// Serve implements stage.Prepared: the programs need no process.
func (p *prepared) Serve(context.Context, func()) error { return nil }

// Settle implements stage.Prepared.
func (p *prepared) Settle(context.Context) error { return nil }

// Close implements stage.Prepared.
func (p *prepared) Close() error { return nil }
