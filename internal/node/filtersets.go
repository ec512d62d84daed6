// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterset"
	"culvert/internal/filter/filterstage"
)

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
		f, err := filterplane.Read(inst)
		if err != nil {
			return err
		}
		set := filterplane.Set{Name: c.Name, Endpoints: c.Type == filterstage.SetEndpoints}
		there := false
		if n := slices.IndexFunc(f.Sets, func(s filterplane.Set) bool { return s.Name == c.Name }); n >= 0 {
			if c.Type != "" && f.Sets[n].Endpoints != set.Endpoints {
				return fmt.Errorf("set %s has members of another type than %s", c.Name, c.Type)
			}
			set, there = f.Sets[n], true
		}
		done := progress(c.Progress, "set "+c.Name+": reading entries")
		m, err := filterstage.ReadMembers(set.Endpoints, c.File, c.Stdin, c.Entries, c.Timeout)
		done()
		if err != nil {
			return err
		}
		done = progress(c.Progress, "set "+c.Name+": loading "+m.Count())
		now, err := m.Bring(inst, set, there, c.Replace)
		done()
		if err != nil {
			return err
		}
		fmt.Fprintf(c.Out, "set %s has %s\n", c.Name, now.Count())
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
		err := change(inst, func(f *filterplane.Filter) error {
			ofFile = slices.ContainsFunc(f.Sets, func(s filterplane.Set) bool { return s.Name == name && s.File })
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
		f, err := filterplane.Read(inst)
		if err != nil {
			return err
		}
		n := slices.IndexFunc(f.Sets, func(s filterplane.Set) bool { return s.Name == name })
		if n < 0 {
			return fmt.Errorf("no set %s: see 'culvert filter set list'", name)
		}
		m, err := filterstage.ReadMembers(f.Sets[n].Endpoints, "", nil, entries, "")
		if err != nil {
			return err
		}
		var now filterstage.Members
		missing := func(entry any) error { return fmt.Errorf("%v is not in it: nothing is deleted", entry) }
		if f.Sets[n].Endpoints {
			err = filterplane.EditEndpoints(inst, name, func(e filterset.Endpoints) (filterset.Endpoints, error) {
				if entry, ok := e.Missing(m.Endpoints); ok {
					return nil, missing(entry)
				}
				e.Remove(m.Endpoints)
				now.Endpoints = e
				return e, nil
			})
		} else {
			err = filterplane.EditPrefixes(inst, name, func(p *filterset.Prefixes) (*filterset.Prefixes, error) {
				if entry, ok := p.Missing(m.Prefixes); ok {
					return nil, missing(entry)
				}
				p.Remove(m.Prefixes)
				now.Prefixes = p
				return p, nil
			})
		}
		if err == nil {
			fmt.Fprintf(out, "set %s has %s\n", name, now.Count())
		}
		return err
	})
}
