// SPDX-License-Identifier: Apache-2.0

package filterview

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterset"
	"culvert/internal/filter/filterstage"
	"culvert/internal/show/dump"
	"culvert/internal/show/text"
)

// DumpOptions are options of Dump.
type DumpOptions struct {
	dump.Options
	// Sets is a directory for files with the entries of sets. "" leaves the entries in the dump.
	Sets string
}

// dumped is what is in a dump of a filter.
type dumped struct {
	filter filterplane.Filter
	// members has the members of sets, by their names, without those that have expired by now.
	members map[string]filterplane.Members
	now     filterset.Time
	// absent has the interfaces of a rule, by its name, that are not the data plane's.
	absent map[string][]string
	notes  []string
}

// Dump writes the filter of a data plane as configuration. The files of sets are written before it, all or none.
func Dump(o DumpOptions) error {
	inst, err := Open(o.On)
	if err != nil {
		return err
	}
	defer inst.Close()
	d, err := gather(inst, o.ByHand)
	if err != nil {
		return err
	}
	files := map[string]string{}
	if o.Sets != "" {
		if files, err = d.writeSets(o.Sets); err != nil {
			return err
		}
	}
	w, err := dump.Begin(inst, o.Options, dump.Head{
		What:     "the filter",
		Comments: []string{"Counters and the state of limits are no configuration: they begin anew."},
		Notes:    d.notes,
	})
	if err != nil {
		return err
	}
	d.write(w, o.ByHand, files)
	return w.Close()
}

// gather reads the filter of a data plane and the members of its sets, while nobody changes them.
func gather(inst *datapath.Instance, byHand bool) (d *dumped, err error) {
	d = &dumped{members: make(map[string]filterplane.Members), absent: make(map[string][]string), now: filterplane.Now()}
	err = inst.Edit(func(now *datapath.Instance) error {
		if d.filter, err = filterplane.Read(now); err != nil {
			return err
		}
		if byHand {
			d.leaveOutFile()
		}
		for _, s := range d.filter.Sets {
			if d.members[s.Name], err = readMembers(now, s, d.now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, s := range d.filter.Sets {
		if n := d.expiring(s); n > 0 {
			d.note("set %s: %s with the time that was left, which begins anew each time the file is read", s.Name, text.Grouped(uint64(n))+plural(n))
		}
	}
	on := inst.Configured()
	for _, r := range d.filter.Rules {
		gone := slices.DeleteFunc(slices.Clone(r.Interfaces), func(name string) bool { return slices.Contains(on, name) })
		if len(gone) > 0 {
			d.absent[r.Name] = gone
			d.note("rule %s: the data plane is not on %s, and a file cannot name it: %s", r.Name, strings.Join(gone, ", "),
				map[bool]string{true: "the rule, which matches nowhere, is a comment", false: "it is left out, so delete the rule before such a file is read"}[len(gone) == len(r.Interfaces)])
		}
	}
	if !byHand && d.filter.Top != filterplane.TopOff {
		d.note("packets are counted by %s for 'culvert filter top', as long as that runs: no file can say so", filter.FormatBy(d.filter.Top))
	}
	return d, nil
}

func plural(n int) string {
	if n == 1 {
		return " entry"
	}
	return " entries"
}

func (d *dumped) note(format string, args ...any) {
	d.notes = append(d.notes, fmt.Sprintf(format, args...))
}

// leaveOutFile leaves out what is from the configuration file, and notes what a drop-in cannot express.
func (d *dumped) leaveOutFile() {
	f := &d.filter
	var front, rules, sets []string
	for n, r := range f.Rules {
		switch {
		case r.File:
			rules = append(rules, r.Name)
		case slices.ContainsFunc(f.Rules[n:], func(o filterplane.Rule) bool { return o.File }):
			front = append(front, r.Name)
		}
	}
	for _, s := range f.Sets {
		if s.File {
			sets = append(sets, s.Name)
		}
	}
	if len(front) > 0 {
		d.note("in front of rules of the file: %s: in a drop-in they are behind all of them", strings.Join(front, ", "))
	}
	if len(rules) > 0 {
		d.note("rules of the file are left out, also if they were replaced or deleted by hand: %s", strings.Join(rules, ", "))
	}
	if len(sets) > 0 {
		d.note("sets of the file are left out, with all entries that were added by hand: %s: see 'culvert filter set show'", strings.Join(sets, ", "))
	}
	f.Rules = slices.DeleteFunc(f.Rules, func(r filterplane.Rule) bool { return r.File })
	f.Sets = slices.DeleteFunc(f.Sets, func(s filterplane.Set) bool { return s.File })
	f.Services = slices.DeleteFunc(f.Services, func(s filterplane.Service) bool { return s.File })
}

// write writes the tables. Files has the paths of the files of sets, by the names of the sets.
func (d *dumped) write(w *dump.Writer, byHand bool, files map[string]string) {
	if !byHand {
		w.Table("[filter]", nil)
	} else if len(d.filter.Rules)+len(d.filter.Sets)+len(d.filter.Services) == 0 {
		w.Comment("Nothing was.")
	}
	for _, r := range d.filter.Rules {
		var comments []string
		if gone := d.absent[r.Name]; len(gone) > 0 {
			comments = append(comments, "not on "+strings.Join(gone, ", "))
			if len(gone) == len(r.Interfaces) {
				w.Commented("[[filter.rule]]", filterstage.RuleTableOf(r), comments...)
				continue
			}
			r.Interfaces = slices.DeleteFunc(slices.Clone(r.Interfaces), func(name string) bool { return slices.Contains(gone, name) })
		}
		w.Table("[[filter.rule]]", filterstage.RuleTableOf(r), comments...)
	}
	for _, s := range d.filter.Services {
		w.Table("[[filter.protect]]", filterstage.ServiceTableOf(s))
	}
	for _, s := range d.filter.Sets {
		t := filterstage.SetTableOf(s)
		t.File = files[s.Name]
		switch {
		case t.File != "":
			w.Table("[[filter.set]]", t)
		case d.empty(s):
			w.Table("[[filter.set]]", t, "without entries: those that are added by hand stay when the file is read again")
		default:
			w.Table("[[filter.set]]", t)
			w.List("entries", d.entries(s))
		}
	}
}

func (d *dumped) empty(s filterplane.Set) bool {
	for range d.entries(s) {
		return false
	}
	return true
}

// entries returns the entries of a set as text, each with the time that is left to it.
func (d *dumped) entries(s filterplane.Set) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name, until := range members(d.members[s.Name]) {
			if !yield(name + Entry{Seconds: until.Until(d.now).Seconds()}.timeout()) {
				return
			}
		}
	}
}

// expiring returns how many entries of a set expire.
func (d *dumped) expiring(s filterplane.Set) (n int) {
	for _, until := range members(d.members[s.Name]) {
		if until != filterset.Never {
			n++
		}
	}
	return n
}
