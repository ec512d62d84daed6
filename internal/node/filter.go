// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/filter/filterset"
)

// wantedFilter is the [filter] table of a file, compiled: nothing in it can be wrong in itself any more.
type wantedFilter struct {
	path   string
	filter datapath.Filter
	// members are of those sets that have some in the file.
	members map[string]datapath.FilterMembers
	// places put file, line and column in front of errors about a table, by its kind and name.
	places map[[2]string]func(key string, err error) error
}

// compileFilter reads everything that a [filter] table names, nothing for a file without one. Interfaces are those
// that the data plane is to be on; none if that is not known yet.
func compileFilter(n *config.Node, path string, interfaces []string) (*wantedFilter, error) {
	w := &wantedFilter{
		path: path, members: make(map[string]datapath.FilterMembers), places: make(map[[2]string]func(string, error) error),
	}
	if n.Filter == nil {
		return w, nil // what an earlier file has left goes
	}
	for _, s := range n.Filter.Sets {
		m, given, err := compileSet(s)
		if err != nil {
			return nil, err
		}
		if given {
			w.members[s.Name] = datapath.FilterMembers(m)
		}
		w.places[[2]string{filter.TableSet, s.Name}] = s.Locate
		w.filter.Sets = append(w.filter.Sets, datapath.FilterSet{Name: s.Name, Endpoints: s.Type == config.SetEndpoints, File: true})
	}
	for _, r := range n.Filter.Rules {
		rule, err := compileRule(r)
		if err != nil {
			return nil, err
		}
		w.places[[2]string{filter.TableRule, rule.Name}] = r.Locate
		w.filter.Rules = append(w.filter.Rules, rule)
	}
	for _, s := range n.Filter.Services {
		addr, err := filter.ParseService(s.Address)
		if err != nil {
			return nil, s.Locate("address", err)
		}
		service := datapath.FilterService{Addr: addr, Forwarded: s.Forwarded, MSS: s.MSS, WindowScale: s.WindowScale, File: true}
		if part, err := filter.CheckService(service); err != nil {
			return nil, s.Locate(part, err)
		}
		if slices.ContainsFunc(w.filter.Services, func(o datapath.FilterService) bool { return o.Addr == addr }) {
			return nil, s.Locate("address", fmt.Errorf("%s is protected a second time", addr))
		}
		w.places[[2]string{filter.TableProtect, addr.String()}] = s.Locate
		w.filter.Services = append(w.filter.Services, service)
	}
	if err := w.reaches(interfaces); err != nil {
		return nil, err
	}
	return w, w.check()
}

// locate puts file, line and column in front of an error.
func (w *wantedFilter) locate(err error) error {
	var at *filter.FileError
	if errors.As(err, &at) {
		if locate := w.places[[2]string{at.Table, at.Name}]; locate != nil {
			return locate(at.Part, at.Err)
		}
	}
	return fmt.Errorf("%s: %w", w.path, err)
}

// reaches refuses rules for interfaces that the data plane is not to be on, if these are known.
func (w *wantedFilter) reaches(interfaces []string) error {
	for _, rule := range w.filter.Rules {
		for _, name := range rule.Interfaces {
			if len(interfaces) > 0 && !slices.Contains(interfaces, name) {
				return w.locate(&filter.FileError{
					Table: filter.TableRule, Name: rule.Name, Part: filter.PartInterfaces,
					Err: fmt.Errorf("rule %s: the data plane is to be on %s, not on %s", rule.Name, strings.Join(interfaces, ", "), name),
				})
			}
		}
	}
	return nil
}

// check finds the first table of the file that the data plane would refuse.
func (w *wantedFilter) check() error {
	whole := w.filter
	// A set may be one that is made by hand.
	whole.Sets = slices.Clone(whole.Sets)
	for _, r := range whole.Rules {
		for _, ref := range slices.Concat(r.Src, r.Dst) {
			if !slices.ContainsFunc(whole.Sets, func(s datapath.FilterSet) bool { return s.Name == ref.Set }) {
				whole.Sets = append(whole.Sets, datapath.FilterSet{Name: ref.Set})
			}
		}
	}
	if whole.Validate() == nil {
		return nil
	}
	// What is refused with some tables is refused with more.
	var f datapath.Filter
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
			return w.locate(&filter.FileError{Table: kind.table, Name: kind.name(bad), Err: err})
		}
	}
	return w.locate(whole.Validate())
}

// merge puts the file's part in the place of an earlier file's.
func (w *wantedFilter) merge(running datapath.Filter) (datapath.Filter, error) {
	merged, err := filter.Merge(running, w.filter)
	if err == nil {
		err = merged.Validate()
	}
	if err != nil {
		return merged, w.locate(err)
	}
	return merged, nil
}

// LoadFilter compiles the [filter] table of the file at path, to try it.
func LoadFilter(path string) (*datapath.Filter, *datapath.FilterTesterSets, error) {
	n, err := config.Load(path)
	if err != nil {
		return nil, nil, err
	}
	if n.Filter == nil {
		return nil, nil, fmt.Errorf("%s has no [filter] table", path)
	}
	w, err := compileFilter(n, path, n.Interfaces)
	if err != nil {
		return nil, nil, err
	}
	alone, err := w.merge(datapath.Filter{})
	if err != nil {
		return nil, nil, err
	}
	sets := &datapath.FilterTesterSets{Prefixes: make(map[string]*filterset.Prefixes), Endpoints: make(map[string]filterset.Endpoints)}
	for name, m := range w.members {
		if m.Prefixes != nil {
			sets.Prefixes[name] = m.Prefixes
		}
		sets.Endpoints[name] = m.Endpoints
	}
	return &alone, sets, nil
}

func compileRule(r config.FilterRule) (datapath.FilterRule, error) {
	spec := filter.Spec{
		Name: r.Name, Action: r.Action, Rate: string(r.Rate), Per: r.Per, Burst: string(r.Burst), Entries: r.Entries,
		Interfaces: r.Interfaces, Src: r.Src, Dst: r.Dst, Expression: r.Expression, All: r.All,
	}
	if r.Program != "" {
		text, err := filter.ReadText(r.Program, nil)
		if err != nil {
			return datapath.FilterRule{}, r.Locate("program", fmt.Errorf("rule %s: %w", r.Name, err))
		}
		spec.Expression = &text
	}
	rule, err := spec.Rule()
	var part *filter.PartError
	switch {
	case err == nil:
		rule.File = true
		return rule, nil
	case errors.Is(err, filter.ErrEverything):
		err = r.Locate(filter.PartAction, fmt.Errorf("rule %s: %w: say all = true if it is meant to", r.Name, filter.ErrEverything))
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

// filteredPlane is a data plane as far as the filter goes.
type filteredPlane interface {
	Wanted() []string
	EditFilterAndSets(change func(*datapath.Filter) error, members map[string]datapath.FilterMembers) error
	setPlane
}

// fits tells, before anything is touched, whether the file's filter goes together with what was made by hand on the data
// plane that runs.
func (w *wantedFilter) fits(now running) error {
	if w == nil {
		return nil
	}
	_, err := w.merge(now.filter)
	return err
}

// apply brings the file's filter into force with the members of its sets: all of it, or nothing.
func (w *wantedFilter) apply(plane filteredPlane) error {
	if w == nil {
		return nil
	}
	if err := w.reaches(plane.Wanted()); err != nil {
		return err
	}
	var taken, gone []string
	err := plane.EditFilterAndSets(func(f *datapath.Filter) error {
		merged, err := w.merge(*f)
		if err != nil {
			return err
		}
		taken, gone = filter.TakenOver(*f, w.filter), filter.Gone(*f, merged)
		*f = merged
		return nil
	}, w.members)
	if err == nil && len(taken) > 0 {
		logger().Info("sets made by hand are the configuration file's now", "sets", strings.Join(taken, ", "))
	}
	if err == nil && len(gone) > 0 {
		logger().Info("the configuration file names these no more: they are taken out of the filter", "gone", strings.Join(gone, ", "))
	}
	return err
}

// onInterfaces refuses a rule for packets that the data plane will not see, not even when an interface is made again.
func onInterfaces(r datapath.FilterRule, attached []string) error {
	for _, name := range r.Interfaces {
		if !slices.Contains(attached, name) {
			return fmt.Errorf("rule for %s: the data plane is not attached to it, but to %s", name, strings.Join(attached, ", "))
		}
	}
	return nil
}

// attachAlone is Attach for a file that has neither a SCION router nor the IP router.
func attachAlone(ctx context.Context, n *config.Node, w *wantedFilter, balanced *wantedBalance, interfaces []string, out io.Writer) error {
	o := options(n)
	o.Name, o.Interfaces, o.Unattended = n.Name, interfaces, true
	o.Wait = false // nobody would attach to what comes later
	balanced, err := complete(&o, w, balanced)
	if err != nil {
		return err
	}
	inst, err := datapath.Attach(o, datapath.Config{})
	if err != nil {
		return err
	}
	defer inst.Close()
	tellAttached(inst, n.Name, out)
	return balanced.settle(ctx, inst, out)
}

func tellAttached(inst *datapath.Instance, name string, out io.Writer) {
	fmt.Fprintf(out, "%s attached to %s\n", name, strings.Join(inst.Attached(), ", "))
	for _, name := range inst.TakenOff() {
		fmt.Fprintf(out, "taken off %s, which was not named\n", name)
	}
}
