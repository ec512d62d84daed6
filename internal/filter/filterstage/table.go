// SPDX-License-Identifier: Apache-2.0

package filterstage

import (
	"errors"
	"fmt"
	"slices"

	"culvert/internal/config"
)

// Table is the table [filter]. Compile checks what its values mean.
type Table struct {
	Rules    []RuleTable    `toml:"rule"`
	Sets     []SetTable     `toml:"set"`
	Services []ServiceTable `toml:"protect"`
}

// RuleTable is a rule. Packets meet the rules in the file's order.
type RuleTable struct {
	Name   string `toml:"name"`
	Action string `toml:"action"`
	// Expression is one of libpcap's. Program is a file with an expression, or with what tcpdump -ddd or -dd prints. A relative
	// path starts at the directory of the configuration file.
	Expression *string `toml:"expression,multiline,omitempty"`
	Program    string  `toml:"program,omitempty"`
	// All confirms that drop or pass is meant for every packet.
	All        bool  `toml:"all,omitempty"`
	Interfaces Words `toml:"interfaces,omitempty"`
	// Src and Dst are references to sets, as "@bad" and "!@good".
	Src Words `toml:"src,omitempty"`
	Dst Words `toml:"dst,omitempty"`
	// Rate, Per, Burst and Entries go with the action limit.
	Rate    Quantity `toml:"rate,omitempty"`
	Per     string   `toml:"per,omitempty"`
	Burst   Quantity `toml:"burst,omitempty"`
	Entries int      `toml:"entries,omitempty"`

	config.Position
}

// SetTable is a named set. Without File and Entries, its members are added by hand.
type SetTable struct {
	Name string `toml:"name"`
	// Type is SetPrefixes, the default, or SetEndpoints.
	Type string `toml:"type,omitempty"`
	// File is a file of entries (filterset.ReadPrefixes). A relative path starts at the directory of the configuration file.
	File    string   `toml:"file,omitempty"`
	Entries []string `toml:"entries,omitempty"`
	// Timeout is the timeout of entries that have none of their own.
	Timeout string `toml:"timeout,omitempty"`

	config.Position
}

// ServiceTable is a service that is protected against floods of SYNs.
type ServiceTable struct {
	Address     string `toml:"address"`
	Forwarded   bool   `toml:"forwarded,omitempty"`
	MSS         uint16 `toml:"mss,omitempty"`
	WindowScale uint8  `toml:"wscale,omitempty"`

	config.Position
}

// Words is a list of strings. In the file it may also be a single string.
type Words []string

// UnmarshalText parses a single string.
func (w *Words) UnmarshalText(text []byte) error {
	*w = Words{string(text)}
	return nil
}

// Quantity is a string. In the file it may also be a number.
type Quantity string

// UnmarshalText parses either.
func (q *Quantity) UnmarshalText(text []byte) error {
	*q = Quantity(text)
	return nil
}

// Types of sets.
const (
	SetPrefixes  = "prefix"
	SetEndpoints = "endpoint"
)

// Check implements config.Table. It sets the positions of tables, and refuses keys that are missing or exclude each other.
func (f *Table) Check(in config.Position) error {
	var errs config.Errors
	at := func(kind string, n int) config.Position { return in.In(fmt.Sprintf("%s[%d]", kind, n)) }
	var right Table
	for n := range f.Rules {
		f.Rules[n].Position = at("rule", n)
		err := f.checkRule(n)
		if errs.Add(err); err == nil {
			right.Rules = append(right.Rules, f.Rules[n])
		}
	}
	for n := range f.Sets {
		f.Sets[n].Position = at("set", n)
		err := f.checkSet(n)
		if errs.Add(err); err == nil {
			right.Sets = append(right.Sets, f.Sets[n])
		}
	}
	for n := range f.Services {
		s := &f.Services[n]
		s.Position = at("protect", n)
		if s.Address == "" {
			errs.Add(s.Locate("", errors.New("address is missing: name the service, as in \"192.0.2.1:80\"")))
			continue
		}
		right.Services = append(right.Services, *s)
	}
	*f = right
	return errs.Err()
}

// Salvaged implements config.Salvager.
func (*Table) Salvaged() {}

func (f *Table) checkRule(n int) error {
	r := &f.Rules[n]
	before := slices.IndexFunc(f.Rules[:n], func(other RuleTable) bool { return other.Name == r.Name })
	switch {
	case r.Name == "":
		return r.Locate("name", errors.New("name is missing: a rule's counters go by it"))
	case before >= 0:
		return r.Locate("name", fmt.Errorf("a second rule %s", r.Name))
	case r.Action == "":
		return r.Locate("action", fmt.Errorf("rule %s: action is missing: use drop, pass, count or limit", r.Name))
	case r.Expression != nil && r.Program != "":
		return r.Locate("program", fmt.Errorf("rule %s: program beside expression: give one of them", r.Name))
	}
	for key, words := range map[string]Words{"interfaces": r.Interfaces, "src": r.Src, "dst": r.Dst} {
		if slices.Contains(words, "") {
			return r.Locate(key, fmt.Errorf("rule %s: %s has an empty name: leave it out", r.Name, key))
		}
	}
	r.Program = r.Relative("program", r.Program)
	return nil
}

func (f *Table) checkSet(n int) error {
	s := &f.Sets[n]
	before := slices.IndexFunc(f.Sets[:n], func(other SetTable) bool { return other.Name == s.Name })
	if s.Type == "" {
		s.Type = SetPrefixes
	}
	switch {
	case s.Name == "":
		return s.Locate("name", errors.New("name is missing: rules ask for a set by it"))
	case before >= 0:
		return s.Locate("name", fmt.Errorf("a second set %s", s.Name))
	case s.Type != SetPrefixes && s.Type != SetEndpoints:
		return s.Locate("type", fmt.Errorf("set %s: type = %q: use %q or %q", s.Name, s.Type, SetPrefixes, SetEndpoints))
	case s.File != "" && s.Entries != nil:
		return s.Locate("entries", fmt.Errorf("set %s: entries beside file: give one of them", s.Name))
	case s.Timeout != "" && s.File == "" && s.Entries == nil:
		return s.Locate("timeout", fmt.Errorf("set %s: timeout without entries or file", s.Name))
	}
	s.File = s.Relative("file", s.File)
	return nil
}
