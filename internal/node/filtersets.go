// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterset"
	"culvert/internal/filter/filterstage"
)

// SetChange is a change of a set: entries to add, or to replace all others with.
type SetChange struct {
	// On names the data plane, "" is the only one.
	On   string
	Name string
	// Entries are the entries, unless File names a file that has them. File "-" stands for Stdin.
	Entries []string
	File    string
	Stdin   io.Reader
	// Timeout applies to entries without their own. Without one, "", entries stay until they are deleted.
	Timeout string
	// Type is the type of a new set, and must be that of an existing one: prefix, endpoint, or "" for either.
	Type string
	// Replace removes all other entries.
	Replace bool
	// Existing refuses to make the set if it does not exist.
	Existing bool
	Out      io.Writer
	// Progress receives a line when reading or loading takes long. It may be nil.
	Progress io.Writer
}

// ChangeSet puts entries into a set. Unless c.Existing, it makes the set if it does not exist. An error leaves everything as it was.
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
		exists := false
		if n := slices.IndexFunc(f.Sets, func(s filterplane.Set) bool { return s.Name == c.Name }); n >= 0 {
			if c.Type != "" && f.Sets[n].Endpoints != set.Endpoints {
				return fmt.Errorf("set %s has members of another type than %s", c.Name, c.Type)
			}
			set, exists = f.Sets[n], true
		} else if c.Existing {
			return noSet(f, c.Name)
		}
		done := progress(c.Progress, "set "+c.Name+": reading entries")
		m, err := filterstage.ReadMembers(set.Endpoints, c.File, c.Stdin, c.Entries, c.Timeout)
		done()
		if err != nil {
			return err
		}
		done = progress(c.Progress, "set "+c.Name+": loading "+m.Count())
		now, err := m.Bring(inst, set, exists, c.Replace)
		done()
		if err != nil {
			return err
		}
		fmt.Fprintf(c.Out, "set %s has %s\n", c.Name, now.Count())
		if line := m.Joined(); line != "" {
			fmt.Fprintln(c.Out, line)
		}
		for _, entry := range c.Entries {
			if looksLikeNetwork(entry) {
				fmt.Fprintf(c.Out, "%s is the one address %[1]s/32: a network needs its length, as %[1]s/24\n", entry)
			}
		}
		if set.File {
			fmt.Fprintf(c.Out, "the set is from the configuration file: the file's entries replace these when it is read again\n")
		}
		return nil
	})
}

// noSet returns the error of a change of a set that f does not have.
func noSet(f filterplane.Filter, name string) error {
	const maxNamed = 5
	var names []string
	for _, s := range f.Sets {
		if len(names) == maxNamed {
			names = append(names, "others")
			break
		}
		names = append(names, s.Name)
	}
	there := "there is none"
	if len(names) > 0 {
		there = "there is " + strings.Join(names, ", ")
	}
	return fmt.Errorf("no set %s: %s; 'culvert filter set add' makes one", name, there)
}

// looksLikeNetwork tells whether an entry is an IPv4 address without a prefix length whose last byte is 0. Its author may have
// meant a network.
func looksLikeNetwork(entry string) bool {
	a, err := netip.ParseAddr(entry)
	return err == nil && a.Is4() && a.As4()[3] == 0
}

// progressAfter is how long work may take before progress is reported.
const progressAfter = time.Second

// progress writes a line to out if work takes longer than progressAfter, and another one with the time when done is called.
// out may be nil.
func progress(out io.Writer, what string) (done func()) {
	if out == nil {
		return func() {}
	}
	start := time.Now()
	reported := make(chan bool, 1)
	reported <- false
	timer := time.AfterFunc(progressAfter, func() {
		<-reported
		fmt.Fprintf(out, "%s ...\n", what)
		reported <- true
	})
	return func() {
		timer.Stop()
		if <-reported {
			fmt.Fprintf(out, "%s took %.1f s\n", what, time.Since(start).Seconds())
		}
		reported <- true
	}
}

// DeleteSet deletes a set. It returns an error if a rule uses the set.
func DeleteSet(on, name string, out io.Writer) error {
	return edit(on, func(inst *datapath.Instance) error {
		fromFile := false
		err := change(inst, func(f *filterplane.Filter) error {
			fromFile = slices.ContainsFunc(f.Sets, func(s filterplane.Set) bool { return s.Name == name && s.File })
			return filter.DeleteSets(f, []string{name})
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "set %s deleted\n", name)
		if fromFile {
			fmt.Fprintf(out, "the configuration file brings it back when it is read again\n")
		}
		return nil
	})
}

// DeleteEntries deletes entries of a set: all that are named, or none if one is not in the set.
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
