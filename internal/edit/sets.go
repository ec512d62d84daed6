// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterset"
	"culvert/internal/filter/filterstage"
	"culvert/internal/show/usage"
)

// SetEntries are entries of a set.
type SetEntries struct {
	onFilter
	// Set is the name of the set.
	Set string `json:"set"`
	// Entries are prefixes, or addresses with ports.
	Entries []string `json:"entries,omitempty"`
	// Text has entries as a file has them, in place of Entries: with blanks or line ends between them, and comments from # to the end of
	// a line.
	Text *string `json:"text,omitempty"`
	// TextName is what errors call the text: the name of its file.
	TextName string `json:"text_name,omitempty"`
	// Timeout is how long entries stay that have no timeout of their own: 90s, 10m, 1d. Without it they stay until they are deleted.
	Timeout string `json:"timeout,omitempty"`

	// Progress receives a line when reading or loading takes long. It may be nil.
	Progress io.Writer `json:"-"`
}

// SetAdd asks for entries to be added to a set, which is made if there is none.
type SetAdd struct {
	SetEntries
	// Type is that of a new set, prefix (the default) or endpoint. A set that exists has to be of it.
	Type string `json:"type,omitempty"`
	// Replace deletes all other entries.
	Replace bool `json:"replace,omitempty"`
}

// SetReplace asks for the entries of a set that exists to be replaced.
type SetReplace struct{ SetEntries }

// Check implements Request.
func (c *SetAdd) Check() error {
	if c.Type != "" && c.Type != filterstage.SetPrefixes && c.Type != filterstage.SetEndpoints {
		return usage.Error(errors.New("--type is prefix or endpoint"))
	}
	return c.SetEntries.Check()
}

// Check refuses entries that are no entries of any set.
func (c *SetEntries) Check() error {
	switch {
	case c.Text != nil && len(c.Entries) > 0:
		return usage.Error(errors.New("entries beside --file: give one of them"))
	case c.Text == nil && len(c.Entries) == 0:
		return usage.Error(errors.New("no entries: name some, or a --file"))
	}
	if err := filter.CheckName("set", c.Set); err != nil {
		return err
	}
	return checkEntries(c.Entries, c.Timeout)
}

// checkEntries refuses a timeout that is none, and entries that no set can have. Which of them a set takes is known when it is open.
func checkEntries(entries []string, timeout string) error {
	_, asPrefixes := filterstage.ReadMembers(false, "", nil, entries, timeout)
	if asPrefixes == nil {
		return nil
	}
	_, asEndpoints := filterstage.ReadMembers(true, "", nil, entries, timeout)
	if len(entries) > 0 && asEndpoints != nil && !hasPort.MatchString(entries[0]) {
		return asPrefixes
	}
	return asEndpoints
}

// hasPort matches entries that are meant to have a port.
var hasPort = regexp.MustCompile(`\]:|\..*:`)

func (c *SetAdd) do(_ context.Context, inst *datapath.Instance, r *Result) error {
	return c.change(inst, c.Type, c.Replace, false, r)
}

func (c *SetReplace) do(_ context.Context, inst *datapath.Instance, r *Result) error {
	return c.change(inst, "", true, true, r)
}

// change puts entries into a set. With replace they replace all others. With existing, the set is not made.
func (c *SetEntries) change(inst *datapath.Instance, kind string, replace, existing bool, r *Result) error {
	f, err := filterplane.Read(inst)
	if err != nil {
		return err
	}
	set := filterplane.Set{Name: c.Set, Endpoints: kind == filterstage.SetEndpoints}
	exists := false
	if n := slices.IndexFunc(f.Sets, func(s filterplane.Set) bool { return s.Name == c.Set }); n >= 0 {
		if kind != "" && f.Sets[n].Endpoints != set.Endpoints {
			return fmt.Errorf("set %s has members of another type than %s", c.Set, kind)
		}
		set, exists = f.Sets[n], true
	} else if existing {
		return noSet(f, c.Set)
	}
	done := Progress(c.Progress, "set "+c.Set+": reading entries")
	m, err := c.read(set.Endpoints)
	done()
	if err != nil {
		return err
	}
	done = Progress(c.Progress, "set "+c.Set+": loading "+m.Count())
	now, err := m.Bring(inst, set, exists, replace)
	done()
	if err != nil {
		return err
	}
	fmt.Fprintf(r, "set %s has %s\n", c.Set, now.Count())
	if line := m.Joined(); line != "" {
		fmt.Fprintln(r, line)
	}
	noteAddresses(c.Entries, r)
	if set.File {
		fmt.Fprintf(r, "the set is from the configuration file: the file's entries replace these when it is read again\n")
	}
	return nil
}

// Read reads the text of a file, or of stdin if file is "-".
func (c *SetEntries) Read(file string, stdin io.Reader) error {
	name, data, err := filterstage.ReadFile(file, stdin)
	if err != nil {
		return err
	}
	text := string(data)
	c.Text, c.TextName = &text, name
	return nil
}

func (c *SetEntries) read(endpoints bool) (filterstage.Members, error) {
	if c.Text == nil {
		return filterstage.ReadMembers(endpoints, "", nil, c.Entries, c.Timeout)
	}
	name := c.TextName
	if name == "" {
		name = "text"
	}
	return filterstage.ParseMembers(endpoints, name, []byte(*c.Text), c.Timeout)
}

// noteAddresses writes which entries are one address, though their authors may have meant a network.
func noteAddresses(entries []string, r *Result) {
	const most = 10
	n := 0
	for _, entry := range entries {
		if !looksLikeNetwork(entry) {
			continue
		}
		if n++; n <= most {
			fmt.Fprintf(r, "%s is the one address %[1]s/32: a network needs its length, as %[1]s/24\n", entry)
		}
	}
	if n > most {
		fmt.Fprintf(r, "%d more entries are one address\n", n-most)
	}
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

// Progress writes a line to out if work takes longer than progressAfter, and another one with the time when done is called.
// out may be nil.
func Progress(out io.Writer, what string) (done func()) {
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

// SetDel asks for a set to be deleted, or entries of it: all that are named, or none if one is not in the set.
type SetDel struct {
	onFilter
	// Set is the name of the set.
	Set string `json:"set"`
	// Entries are those to delete. Without any the set is deleted, unless a rule uses it.
	Entries []string `json:"entries,omitempty"`
}

// Check implements Request.
func (d *SetDel) Check() error {
	if d.Set == "" {
		return usage.Error(errors.New("no set: name one"))
	}
	return checkEntries(d.Entries, "")
}

func (d *SetDel) do(_ context.Context, inst *datapath.Instance, r *Result) error {
	if len(d.Entries) > 0 {
		return deleteEntries(inst, d.Set, d.Entries, r)
	}
	fromFile := false
	err := change(inst, func(f *filterplane.Filter) error {
		fromFile = slices.ContainsFunc(f.Sets, func(s filterplane.Set) bool { return s.Name == d.Set && s.File })
		return filter.DeleteSets(f, []string{d.Set})
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(r, "set %s deleted\n", d.Set)
	if fromFile {
		fmt.Fprintf(r, "the configuration file brings it back when it is read again\n")
	}
	return nil
}

func deleteEntries(inst *datapath.Instance, name string, entries []string, r *Result) error {
	f, err := filterplane.Read(inst)
	if err != nil {
		return err
	}
	s, err := f.NamedSet(name)
	if err != nil {
		return err
	}
	m, err := filterstage.ReadMembers(s.Endpoints, "", nil, entries, "")
	if err != nil {
		return err
	}
	var now filterstage.Members
	missing := func(entry any) error { return fmt.Errorf("%v is not in it: nothing is deleted", entry) }
	if s.Endpoints {
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
		fmt.Fprintf(r, "set %s has %s\n", name, now.Count())
	}
	return err
}
