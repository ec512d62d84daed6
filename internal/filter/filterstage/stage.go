// SPDX-License-Identifier: Apache-2.0

package filterstage

import (
	"context"
	"fmt"
	"net/netip"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/filter/filterplane"
	"culvert/internal/host/hostaddr"
	"culvert/internal/host/netdev"
	"culvert/internal/stage"
)

// Stage is the packet filter.
type Stage struct{}

// Name implements stage.Stage.
func (Stage) Name() string { return filterplane.Stage }

// Table implements stage.Stage.
func (Stage) Table() config.Table { return new(Table) }

// Forgets implements stage.Forgetter.
func (Stage) Forgets(stage.Plan) string {
	return "the counters of the file's rules, and what was added by hand to the file's sets"
}

// Plan implements stage.Stage. A file without [filter] has a plan too, which removes what an earlier file had.
func (Stage) Plan(f stage.File) (stage.Plan, error) { return Compile(f) }

// Name implements stage.Plan.
func (p *Plan) Name() string { return filterplane.Stage }

// Prepare implements stage.Plan.
func (p *Plan) Prepare(_ context.Context, start stage.Start) (stage.Prepared, error) {
	return &prepared{p, start}, nil
}

// Summary implements stage.Summarizer. It counts entries as the file has them: merged into prefixes there may be fewer.
func (p *Plan) Summary() []stage.Count {
	entries := 0
	for _, m := range p.members {
		entries += Members(m).entries()
	}
	return []stage.Count{
		{Key: "rules", One: "rule", N: len(p.filter.Rules)}, {Key: "sets", One: "set", N: len(p.filter.Sets)},
		{Key: "entries", One: "entry", N: entries}, {Key: "services", One: "protected service", N: len(p.filter.Services)},
	}
}

// CheckHost implements stage.HostChecker. It notes the services that are declared to be on this host although it does not have their
// addresses: no client gets a connection to them.
func (p *Plan) CheckHost(h stage.Host) error {
	var local []netip.AddrPort
	for _, s := range p.filter.Services {
		if !s.Forwarded {
			local = append(local, s.Addr)
		}
	}
	elsewhere, err := hostaddr.Elsewhere(local)
	if err != nil {
		h.Note(err)
	}
	for _, s := range elsewhere {
		h.Note(p.LocateService(s, fmt.Errorf("this host does not have the address of protected service %s: no client gets a connection to it; "+
			"for a service behind this host set forwarded = true", s)))
	}
	return nil
}

// CheckPort implements stage.PortChecker.
func (p *Plan) CheckPort(name string) error {
	if !p.On() {
		return nil
	}
	return netdev.CheckVLANs(name)
}

// Check implements stage.Plan: the file's filter must not contradict what was made by hand.
func (p *Plan) Check(s stage.Situation) error {
	if err := p.reaches(s.Interfaces); err != nil {
		return err
	}
	now, err := running(s.Running)
	if err != nil {
		return err
	}
	merged, err := p.merge(now)
	p.on = p.on || len(merged.Rules)+len(merged.Services) > 0
	return err
}

// On tells whether the filter is on: because of the file or, once Check has been called, of what was made by hand.
func (p *Plan) On() bool { return p.on }

// running returns the filter of a data plane. It is empty if inst is nil.
func running(inst *datapath.Instance) (filterplane.Filter, error) {
	if inst == nil {
		return filterplane.Filter{}, nil
	}
	return filterplane.Read(inst)
}

// Protected returns the services that are going to be protected by SYN cookies: those made by hand, and the file's.
func (p *Plan) Protected(inst *datapath.Instance) (byHand, inFile []netip.AddrPort, err error) {
	return p.services(inst, func(filterplane.Service) bool { return true })
}

// Forwarded returns those of them that are declared to be behind this host.
func (p *Plan) Forwarded(inst *datapath.Instance) (byHand, inFile []netip.AddrPort, err error) {
	return p.services(inst, func(s filterplane.Service) bool { return s.Forwarded })
}

// services returns the services for which match is true.
func (p *Plan) services(inst *datapath.Instance, match func(filterplane.Service) bool) (byHand, inFile []netip.AddrPort, err error) {
	now, err := running(inst)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range now.Services {
		if !s.File && match(s) {
			byHand = append(byHand, s.Addr)
		}
	}
	for _, s := range p.filter.Services {
		if match(s) {
			inFile = append(inFile, s.Addr)
		}
	}
	return byHand, inFile, nil
}

// LocateService adds the position of a protected service in the file to an error.
func (p *Plan) LocateService(service netip.AddrPort, err error) error {
	return p.locate(&filter.FileError{Table: filter.TableProtect, Name: service.String(), Part: "address", Err: err})
}

// prepared is a Plan that is ready to be applied to a data plane. It needs nothing else.
type prepared struct {
	*Plan
	start stage.Start
}

// Part implements stage.Prepared.
func (p *prepared) Part() datapath.Part { return filterplane.NewPart() }

// Commit implements stage.Prepared. If rest fails, the engine brings the program before back into force.
func (p *prepared) Commit(_ context.Context, inst *datapath.Instance, rest func() error) error {
	if err := p.Apply(inst, p.start.Log); err != nil {
		return err
	}
	return rest()
}

// Restore implements stage.Restorer.
func (p *prepared) Restore(inst *datapath.Instance) error { return p.Apply(inst, p.start.Log) }

// Serve implements stage.Prepared. The programs need no process.
func (p *prepared) Serve(context.Context, func()) error { return nil }

// Settle implements stage.Prepared.
func (p *prepared) Settle(context.Context) error { return nil }

// Close implements stage.Prepared.
func (p *prepared) Close() error { return nil }
