// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"time"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/filter/filterset"
	"culvert/internal/show/text"
)

// setPlane is a data plane as far as the members of sets go. A change is made at once, or not at all.
type setPlane interface {
	EditFilterPrefixes(name string, change func(*filterset.Prefixes) (*filterset.Prefixes, error)) error
	EditFilterEndpoints(name string, change func(filterset.Endpoints) (filterset.Endpoints, error)) error
}

// members are what a set is to have.
type members datapath.FilterMembers

func (m members) count() string {
	n := len(m.Endpoints)
	if m.Prefixes != nil {
		n = m.Prefixes.Len()
	}
	if n == 1 {
		return "1 entry"
	}
	return text.Grouped(uint64(n)) + " entries"
}

// readMembers reads entries of a file, "-" for standard input, or else those given.
func readMembers(endpoints bool, file string, stdin io.Reader, entries []string, timeout string) (m members, err error) {
	o := filterset.Options{Now: datapath.FilterSetNow()}
	if timeout != "" {
		if o.Timeout, err = filterset.ParseTimeout(timeout); err != nil {
			return m, err
		}
	}
	if file == "" {
		if endpoints {
			m.Endpoints, err = filterset.ParseEndpoints(entries, o)
		} else {
			m.Prefixes, err = filterset.ParsePrefixes(entries, o)
		}
		return m, err
	}
	name := file
	var data []byte
	if file == "-" {
		name = "standard input"
		data, err = io.ReadAll(stdin)
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return m, fmt.Errorf("reading %s: %w", name, err)
	}
	if endpoints {
		m.Endpoints, err = filterset.ReadEndpoints(name, data, o)
	} else {
		m.Prefixes, err = filterset.ReadPrefixes(name, data, o)
	}
	return m, err
}

// put adds the members to a set, or puts them in the place of those that it has. It returns what the set then has.
func (m members) put(plane setPlane, name string, replace bool) (now members, err error) {
	if m.Prefixes != nil {
		err = plane.EditFilterPrefixes(name, func(p *filterset.Prefixes) (*filterset.Prefixes, error) {
			if now.Prefixes = m.Prefixes; !replace {
				p.Add(m.Prefixes)
				now.Prefixes = p
			}
			return now.Prefixes, nil
		})
		return now, err
	}
	err = plane.EditFilterEndpoints(name, func(e filterset.Endpoints) (filterset.Endpoints, error) {
		if now.Endpoints = m.Endpoints; !replace {
			e.Add(m.Endpoints)
			now.Endpoints = e
		}
		return now.Endpoints, nil
	})
	return now, err
}

// bring makes a set with the members, or puts them into the one that is there, whose rules need no new program.
func (m members) bring(plane filteredPlane, set datapath.FilterSet, there, replace bool) (now members, err error) {
	if !there {
		err = plane.EditFilterAndSets(func(f *datapath.Filter) error { return filter.AddSet(f, set) },
			map[string]datapath.FilterMembers{set.Name: datapath.FilterMembers(m)})
		if !errors.Is(err, filter.ErrThere) { // made by somebody else since
			return m, err
		}
	}
	return m.put(plane, set.Name, replace)
}

// compileSet reads what a file has in a set. given is false if it has no members: they are added by hand, and stay.
func compileSet(s config.FilterSet) (m members, given bool, err error) {
	if err := filter.CheckName("set", s.Name); err != nil {
		return m, false, s.Locate("name", err)
	}
	if s.File == "" && s.Entries == nil {
		return m, false, nil
	}
	if s.Timeout != "" {
		if _, err := filterset.ParseTimeout(s.Timeout); err != nil {
			return m, false, s.Locate("timeout", fmt.Errorf("set %s: %w", s.Name, err))
		}
	}
	m, err = readMembers(s.Type == config.SetEndpoints, s.File, nil, s.Entries, s.Timeout)
	if err != nil {
		key := "entries"
		if s.File != "" {
			key = "file"
		}
		return m, false, s.Locate(key, fmt.Errorf("set %s: %w", s.Name, err))
	}
	return m, true, nil
}

// SetChange puts entries into a set.
type SetChange struct {
	// On is the data plane, "" for the only one.
	On   string
	Name string
	// Entries, or those of File ("-" for Stdin).
	Entries []string
	File    string
	Stdin   io.Reader
	// Timeout is for entries without one of their own, "" for good.
	Timeout string
	// Type is what a new set has, and an old one must have: prefix, endpoint or "" for either.
	Type string
	// Replace says that nothing else stays in the set.
	Replace bool
	Out     io.Writer
	// Progress is told of work that takes long; it may be nil.
	Progress io.Writer
}

// ChangeSet puts entries into a set, which is made if it is not there. If anything is wrong, nothing has changed.
func ChangeSet(c SetChange) error {
	if err := filter.CheckName("set", c.Name); err != nil {
		return err
	}
	return edit(c.On, func(inst *datapath.Instance) error {
		f, err := inst.Filter()
		if err != nil {
			return err
		}
		set := datapath.FilterSet{Name: c.Name, Endpoints: c.Type == config.SetEndpoints}
		there := false
		if n := slices.IndexFunc(f.Sets, func(s datapath.FilterSet) bool { return s.Name == c.Name }); n >= 0 {
			if c.Type != "" && f.Sets[n].Endpoints != set.Endpoints {
				return fmt.Errorf("set %s has members of another type than %s", c.Name, c.Type)
			}
			set, there = f.Sets[n], true
		}
		done := progress(c.Progress, "set "+c.Name+": reading entries")
		m, err := readMembers(set.Endpoints, c.File, c.Stdin, c.Entries, c.Timeout)
		done()
		if err != nil {
			return err
		}
		done = progress(c.Progress, "set "+c.Name+": loading "+m.count())
		now, err := m.bring(inst, set, there, c.Replace)
		done()
		if err != nil {
			return err
		}
		fmt.Fprintf(c.Out, "set %s has %s\n", c.Name, now.count())
		for _, entry := range c.Entries {
			if looksLikeNetwork(entry) {
				fmt.Fprintf(c.Out, "%s is the one address %[1]s/32: a network needs its length, as %[1]s/24\n", entry)
			}
		}
		if set.File {
			fmt.Fprintf(c.Out, "it is of the configuration file, which says anew what is in it when it is read again\n")
		}
		return nil
	})
}

// looksLikeNetwork tells whether an entry is an IPv4 address without a length that ends as networks do.
func looksLikeNetwork(entry string) bool {
	a, err := netip.ParseAddr(entry)
	return err == nil && a.Is4() && a.As4()[3] == 0
}

// progressAfter is how long work may take in silence.
const progressAfter = time.Second

// progress tells of work that takes long, until it is done.
func progress(out io.Writer, what string) (done func()) {
	if out == nil {
		return func() {}
	}
	start := time.Now()
	told := make(chan bool, 1)
	told <- false
	timer := time.AfterFunc(progressAfter, func() {
		<-told
		fmt.Fprintf(out, "%s ...\n", what)
		told <- true
	})
	return func() {
		timer.Stop()
		if <-told {
			fmt.Fprintf(out, "%s took %.1f s\n", what, time.Since(start).Seconds())
		}
		told <- true
	}
}

// DeleteSet takes a set away that no rule asks for.
func DeleteSet(on, name string, out io.Writer) error {
	return edit(on, func(inst *datapath.Instance) error {
		ofFile := false
		err := inst.EditFilter(func(f *datapath.Filter) error {
			ofFile = slices.ContainsFunc(f.Sets, func(s datapath.FilterSet) bool { return s.Name == name && s.File })
			return filter.DeleteSets(f, []string{name})
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "set %s deleted\n", name)
		if ofFile {
			fmt.Fprintf(out, "the configuration file brings it back when it is read again\n")
		}
		return nil
	})
}

// DeleteEntries takes entries out of a set: all of them, or none if one is not there.
func DeleteEntries(on, name string, entries []string, out io.Writer) error {
	return edit(on, func(inst *datapath.Instance) error {
		f, err := inst.Filter()
		if err != nil {
			return err
		}
		n := slices.IndexFunc(f.Sets, func(s datapath.FilterSet) bool { return s.Name == name })
		if n < 0 {
			return fmt.Errorf("no set %s: see 'culvert filter set list'", name)
		}
		m, err := readMembers(f.Sets[n].Endpoints, "", nil, entries, "")
		if err != nil {
			return err
		}
		var now members
		missing := func(entry any) error { return fmt.Errorf("%v is not in it: nothing is deleted", entry) }
		if f.Sets[n].Endpoints {
			err = inst.EditFilterEndpoints(name, func(e filterset.Endpoints) (filterset.Endpoints, error) {
				if entry, ok := e.Missing(m.Endpoints); ok {
					return nil, missing(entry)
				}
				e.Remove(m.Endpoints)
				now.Endpoints = e
				return e, nil
			})
		} else {
			err = inst.EditFilterPrefixes(name, func(p *filterset.Prefixes) (*filterset.Prefixes, error) {
				if entry, ok := p.Missing(m.Prefixes); ok {
					return nil, missing(entry)
				}
				p.Remove(m.Prefixes)
				now.Prefixes = p
				return p, nil
			})
		}
		if err == nil {
			fmt.Fprintf(out, "set %s has %s\n", name, now.count())
		}
		return err
	})
}
