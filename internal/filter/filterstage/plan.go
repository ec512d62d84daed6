// SPDX-License-Identifier: Apache-2.0

// Package filterstage is the packet filter as a stage. It compiles the [filter] table of the configuration file and brings it into
// force.
package filterstage

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sort"
	"strings"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterset"
	"culvert/internal/stage"
)

// Plan is the compiled [filter] table of a file. It is valid by itself, but may contradict what was made by hand.
type Plan struct {
	path   string
	on     bool // see On
	files  []string
	filter filterplane.Filter
	// members has the members of sets by name, without the sets that have none in the file.
	members map[string]filterplane.Members
	// positions has functions by the kind and the name of a table. They add the position of a key of the table to an error.
	positions map[[2]string]func(key string, err error) error
}

// Compile compiles the [filter] table of a file, with all files that it names. The plan of a file without the table is empty.
func Compile(file stage.File) (*Plan, error) {
	table := stage.Table[*Table](file, Stage{})
	p := &Plan{
		path: file.Path, members: make(map[string]filterplane.Members), positions: make(map[[2]string]func(string, error) error),
	}
	if table == nil {
		return p, nil // what an earlier file had is removed
	}
	p.on, p.files = true, filesOf(table)
	var errs config.Errors
	for _, s := range table.Sets {
		m, given, err := compileSet(s)
		errs.Add(err)
		if given {
			p.members[s.Name] = filterplane.Members(m)
		}
		p.positions[[2]string{filter.TableSet, s.Name}] = s.Locate
		p.filter.Sets = append(p.filter.Sets, filterplane.Set{Name: s.Name, Endpoints: s.Type == SetEndpoints, File: true})
	}
	for _, r := range table.Rules {
		rule, err := compileRule(r)
		if err != nil {
			errs.Add(err)
			continue
		}
		p.positions[[2]string{filter.TableRule, rule.Name}] = r.Locate
		p.filter.Rules = append(p.filter.Rules, rule)
	}
	for _, s := range table.Services {
		addr, err := filter.ParseService(s.Address)
		if err != nil {
			errs.Add(s.Locate("address", err))
			continue
		}
		service := filterplane.Service{Addr: addr, Forwarded: s.Forwarded, MSS: s.MSS, WindowScale: s.WindowScale, File: true}
		if part, err := filter.CheckService(service); err != nil {
			errs.Add(s.Locate(part, err))
			continue
		}
		if slices.ContainsFunc(p.filter.Services, func(o filterplane.Service) bool { return o.Addr == addr }) {
			errs.Add(s.Locate("address", fmt.Errorf("%s is protected a second time", addr)))
			continue
		}
		p.positions[[2]string{filter.TableProtect, addr.String()}] = s.Locate
		p.filter.Services = append(p.filter.Services, service)
	}
	errs.Add(p.reaches(file.Node.Interfaces))
	if len(errs) == 0 {
		errs.Add(p.check())
	}
	if err := errs.Err(); err != nil {
		return nil, err
	}
	return p, nil
}

// locate adds the position of a *filter.FileError to it, and the path of the file to any other error.
func (p *Plan) locate(err error) error {
	var at *filter.FileError
	if errors.As(err, &at) {
		if locate := p.positions[[2]string{at.Table, at.Name}]; locate != nil {
			return locate(at.Part, at.Err)
		}
	}
	return fmt.Errorf("%s: %w", p.path, err)
}

// reaches refuses rules for interfaces that are not among those of the data plane. It refuses none if these are not known.
func (p *Plan) reaches(interfaces []string) error {
	var errs config.Errors
	for _, rule := range p.filter.Rules {
		for _, name := range rule.Interfaces {
			if len(interfaces) > 0 && !slices.Contains(interfaces, name) {
				errs.Add(p.locate(&filter.FileError{
					Table: filter.TableRule, Name: rule.Name, Part: filter.PartInterfaces,
					Err: fmt.Errorf("rule %s: the data plane is to be on %s, not on %s", rule.Name, strings.Join(interfaces, ", "), name),
				}))
			}
		}
	}
	return errs.Err()
}

// check finds the first table of the file that the data plane would refuse.
func (p *Plan) check() error {
	whole := p.filter
	// A rule may use a set made by hand.
	whole.Sets = slices.Clone(whole.Sets)
	for _, r := range whole.Rules {
		for _, ref := range slices.Concat(r.Src, r.Dst) {
			if !slices.ContainsFunc(whole.Sets, func(s filterplane.Set) bool { return s.Name == ref.Set }) {
				whole.Sets = append(whole.Sets, filterplane.Set{Name: ref.Set})
			}
		}
	}
	if whole.Validate() == nil {
		return nil
	}
	// Whatever is refused is also refused with more tables. So a binary search finds the first table that is one too many.
	var f filterplane.Filter
	for _, kind := range []struct {
		table string
		n     int
		take  func(n int)
		name  func(n int) string
	}{
		{filter.TableSet, len(whole.Sets), func(n int) { f.Sets = whole.Sets[:n] }, func(n int) string { return whole.Sets[n].Name }},
		{filter.TableRule, len(whole.Rules), func(n int) { f.Rules = whole.Rules[:n] }, func(n int) string { return whole.Rules[n].Name }},
		{filter.TableProtect, len(whole.Services), func(n int) { f.Services = whole.Services[:n] },
			func(n int) string { return whole.Services[n].Addr.String() }},
	} {
		bad := sort.Search(kind.n, func(n int) bool { kind.take(n + 1); return f.Validate() != nil })
		kind.take(min(bad+1, kind.n))
		if err := f.Validate(); err != nil {
			return p.locate(&filter.FileError{Table: kind.table, Name: kind.name(bad), Err: err})
		}
	}
	return p.locate(whole.Validate())
}

// merge returns the running filter with p in place of what an earlier file had.
func (p *Plan) merge(running filterplane.Filter) (filterplane.Filter, error) {
	merged, err := filter.Merge(running, p.filter)
	if err == nil {
		err = merged.Validate()
	}
	if err != nil {
		return merged, p.locate(err)
	}
	return merged, nil
}

// Alone returns the file's filter without anything made by hand, and the members of its sets, for a filterplane.Tester.
func (p *Plan) Alone() (*filterplane.Filter, *filterplane.TesterSets, error) {
	alone, err := p.merge(filterplane.Filter{})
	if err != nil {
		return nil, nil, err
	}
	sets := &filterplane.TesterSets{Prefixes: make(map[string]*filterset.Prefixes), Endpoints: make(map[string]filterset.Endpoints)}
	for name, m := range p.members {
		if m.Prefixes != nil {
			sets.Prefixes[name] = m.Prefixes
		}
		sets.Endpoints[name] = m.Endpoints
	}
	return &alone, sets, nil
}

// compileRule compiles a rule. Its errors have positions.
func compileRule(r RuleTable) (filterplane.Rule, error) {
	spec := filter.Spec{
		Name: r.Name, Action: r.Action, Rate: string(r.Rate), Per: r.Per, Burst: string(r.Burst), Entries: r.Entries,
		Interfaces: r.Interfaces, Src: r.Src, Dst: r.Dst, Expression: r.Expression, All: r.All,
	}
	if r.Program != "" {
		text, err := filter.ReadText(r.Program, nil)
		if err != nil {
			return filterplane.Rule{}, r.Locate("program", fmt.Errorf("rule %s: %w", r.Name, err))
		}
		spec.Expression = &text
	}
	rule, err := spec.Rule()
	var (
		part       *filter.PartError
		everything *filter.EverythingError
	)
	switch {
	case err == nil:
		rule.File = true
		return rule, nil
	case errors.As(err, &everything):
		err = r.Locate(filter.PartAction, fmt.Errorf("rule %s: %w: say all = true if it is meant to", r.Name, everything))
	case errors.As(err, &part):
		key := part.Part
		if key == filter.PartExpression && r.Program != "" {
			key = "program"
			part.Err = fmt.Errorf("%s: %w", r.Program, part.Err)
		}
		err = r.Locate(key, fmt.Errorf("rule %s: %w", r.Name, part.Err))
	}
	return rule, err
}

// Apply brings the file's filter into force, with the members of its sets, as a whole or, on an error, not at all.
func (p *Plan) Apply(inst *datapath.Instance, log *slog.Logger) error {
	if err := p.reaches(inst.Configured()); err != nil {
		return err
	}
	var taken, gone []string
	err := filterplane.EditAndSets(inst, func(f *filterplane.Filter) error {
		merged, err := p.merge(*f)
		if err != nil {
			return err
		}
		taken, gone = filter.TakenOver(*f, p.filter), filter.Gone(*f, merged)
		*f = merged
		return nil
	}, p.members)
	if err == nil && len(taken) > 0 {
		log.Info("sets made by hand are the configuration file's now", "sets", strings.Join(taken, ", "))
	}
	if err == nil && len(gone) > 0 {
		log.Info("the configuration file names these no more: they are taken out of the filter", "gone", strings.Join(gone, ", "))
	}
	return err
}
