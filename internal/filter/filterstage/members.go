// SPDX-License-Identifier: Apache-2.0

package filterstage

import (
	"errors"
	"fmt"
	"io"
	"os"

	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterset"
	"culvert/internal/show/text"
)

// Members are the members for a set.
type Members filterplane.Members

// Count returns how many members there are, as "2 prefixes" or "1 endpoint".
func (m Members) Count() string { return CountText(m.size(), m.Prefixes == nil) }

// CountText is Count for a number of endpoints or prefixes.
func CountText(n int, endpoints bool) string {
	one, more := "prefix", "prefixes"
	if endpoints {
		one, more = "endpoint", "endpoints"
	}
	if n == 1 {
		return "1 " + one
	}
	return text.Grouped(uint64(n)) + " " + more
}

// Joined returns a line about members that were read from more or fewer entries, "" otherwise.
func (m Members) Joined() string {
	n := m.entries()
	switch {
	case n == m.size():
		return ""
	case n == 1:
		return "1 entry given, a range of " + m.Count()
	}
	how := "after merging those that touch or overlap"
	if n < m.size() {
		how = "after splitting ranges"
	}
	return text.Grouped(uint64(n)) + " entries given, " + m.Count() + " " + how
}

// entries returns how many entries the members were read from. For endpoints it is how many there are: none of them merge.
func (m Members) entries() int {
	if m.Prefixes != nil {
		return m.Prefixes.Given()
	}
	return len(m.Endpoints)
}

// size returns how many members there are.
func (m Members) size() int {
	if m.Prefixes != nil {
		return m.Prefixes.Len()
	}
	return len(m.Endpoints)
}

// ReadMembers parses the entries of a file, "-" for stdin, or if file is empty the given ones. Timeout is for entries that have none
// of their own; it may be empty.
func ReadMembers(endpoints bool, file string, stdin io.Reader, entries []string, timeout string) (m Members, err error) {
	o, err := options(timeout)
	if err != nil {
		return m, err
	}
	if file == "" {
		if endpoints {
			m.Endpoints, err = filterset.ParseEndpoints(entries, o)
		} else {
			m.Prefixes, err = filterset.ParsePrefixes(entries, o)
		}
		return m, err
	}
	name, data, err := ReadFile(file, stdin)
	if err != nil {
		return m, err
	}
	return ParseMembers(endpoints, name, data, timeout)
}

// ReadFile reads a file with entries, or stdin for "-". It returns also what errors are to call it.
func ReadFile(file string, stdin io.Reader) (name string, data []byte, err error) {
	name = file
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
		return name, nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return name, data, nil
}

// ParseMembers parses the entries that a file of that name has. Timeout is as for ReadMembers.
func ParseMembers(endpoints bool, name string, data []byte, timeout string) (m Members, err error) {
	o, err := options(timeout)
	if err != nil {
		return m, err
	}
	if endpoints {
		m.Endpoints, err = filterset.ReadEndpoints(name, data, o)
	} else {
		m.Prefixes, err = filterset.ReadPrefixes(name, data, o)
	}
	return m, err
}

// options returns the options for entries with a timeout, "" for none.
func options(timeout string) (o filterset.Options, err error) {
	o.Now = filterplane.Now()
	if timeout != "" {
		o.Timeout, err = filterset.ParseTimeout(timeout)
	}
	return o, err
}

// Put adds the members to a set or, with replace, replaces those that it has. It returns the members that the set then has.
func (m Members) Put(inst *datapath.Instance, name string, replace bool) (now Members, err error) {
	if m.Prefixes != nil {
		err = filterplane.EditPrefixes(inst, name, func(p *filterset.Prefixes) (*filterset.Prefixes, error) {
			if now.Prefixes = m.Prefixes; !replace {
				p.Add(m.Prefixes)
				now.Prefixes = p
			}
			return now.Prefixes, nil
		})
		return now, err
	}
	err = filterplane.EditEndpoints(inst, name, func(e filterset.Endpoints) (filterset.Endpoints, error) {
		if now.Endpoints = m.Endpoints; !replace {
			e.Add(m.Endpoints)
			now.Endpoints = e
		}
		return now.Endpoints, nil
	})
	return now, err
}

// Bring is Put. If the set did not exist when the caller looked, it makes the set with the members.
func (m Members) Bring(inst *datapath.Instance, set filterplane.Set, exists, replace bool) (now Members, err error) {
	if !exists {
		err = filterplane.EditAndSets(inst, func(f *filterplane.Filter) error { return filter.AddSet(f, set) },
			map[string]filterplane.Members{set.Name: filterplane.Members(m)})
		if !errors.Is(err, filter.ErrExists) { // another process may have made it since
			return m, err
		}
	}
	return m.Put(inst, set.Name, replace)
}

// compileSet returns the members that the file has for a set. Given is false if it has none: then they are added by hand, and stay.
func compileSet(s SetTable) (m Members, given bool, err error) {
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
	m, err = ReadMembers(s.Type == SetEndpoints, s.File, nil, s.Entries, s.Timeout)
	if err != nil {
		key := "entries"
		if s.File != "" {
			key = "file"
		}
		return m, false, s.Locate(key, fmt.Errorf("set %s: %w", s.Name, err))
	}
	return m, true, nil
}
