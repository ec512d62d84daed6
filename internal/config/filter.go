// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Filter configures the filter. What its rules mean is checked by who carries them out, with Locate.
type Filter struct {
	Rules    []FilterRule    `toml:"rule"`
	Sets     []FilterSet     `toml:"set"`
	Services []FilterService `toml:"protect"`
}

// FilterRule is a rule; rules are asked in the file's order.
type FilterRule struct {
	Name   string `toml:"name"`
	Action string `toml:"action"`
	// Expression is one of libpcap. Program is a file with one, or with what tcpdump -ddd or -dd prints;
	// a relative path starts at this file's directory.
	Expression *string `toml:"expression"`
	Program    string  `toml:"program"`
	// All confirms that drop is to drop every packet.
	All        bool  `toml:"all"`
	Interfaces Words `toml:"interfaces"`
	// Src and Dst are sets: "@bad", "!@good".
	Src Words `toml:"src"`
	Dst Words `toml:"dst"`
	// Rate, Per, Burst and Entries go with the action limit.
	Rate    Quantity `toml:"rate"`
	Per     string   `toml:"per"`
	Burst   Quantity `toml:"burst"`
	Entries int      `toml:"entries"`

	place
}

// FilterSet is a named set. Without file and entries its members are what is added by hand.
type FilterSet struct {
	Name string `toml:"name"`
	// Type is prefix, the default, or endpoint.
	Type string `toml:"type"`
	// File has an entry a line; a relative path starts at this file's directory.
	File    string   `toml:"file"`
	Entries []string `toml:"entries"`
	// Timeout is how long the entries stay; 0 is for good.
	Timeout string `toml:"timeout"`

	place
}

// FilterService is protected against floods of SYNs.
type FilterService struct {
	Address     string `toml:"address"`
	Forwarded   bool   `toml:"forwarded"`
	MSS         uint16 `toml:"mss"`
	WindowScale uint8  `toml:"wscale"`

	place
}

// Words is one text, or a list of them.
type Words []string

// UnmarshalText reads one text.
func (w *Words) UnmarshalText(text []byte) error {
	*w = Words{string(text)}
	return nil
}

// Quantity is a text, or a number in its place.
type Quantity string

// UnmarshalText reads either.
func (q *Quantity) UnmarshalText(text []byte) error {
	*q = Quantity(text)
	return nil
}

// place is where a table of an array stands.
type place struct {
	path     string
	document []byte
	prefix   string
}

// Locate puts file, line and column of a key in front of an error; "" is the table itself.
func (p place) Locate(key string, err error) error {
	for key = strings.TrimSuffix(p.prefix+"."+key, "."); key != ""; {
		if at := position(p.document, key); at != "" {
			return fmt.Errorf("%s%s: %w", p.path, at, err)
		}
		// Not there, or a table or a list in one line: what it is in.
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	return fmt.Errorf("%s: %w", p.path, err)
}

// Types of sets.
const (
	SetPrefixes  = "prefix"
	SetEndpoints = "endpoint"
)

// check says where tables stand, and refuses what contradicts itself whatever it means.
func (f *Filter) check(path string, document []byte) error {
	if f == nil {
		return nil
	}
	at := func(kind string, n int) place {
		return place{path, document, fmt.Sprintf("filter.%s[%d]", kind, n)}
	}
	dir := filepath.Dir(path)
	for n := range f.Rules {
		f.Rules[n].place = at("rule", n)
		if err := f.checkRule(n, dir); err != nil {
			return err
		}
	}
	for n := range f.Sets {
		f.Sets[n].place = at("set", n)
		if err := f.checkSet(n, dir); err != nil {
			return err
		}
	}
	for n := range f.Services {
		s := &f.Services[n]
		s.place = at("protect", n)
		if s.Address == "" {
			return s.Locate("", errors.New("address is missing: name the service, as in \"192.0.2.1:80\""))
		}
	}
	return nil
}

func (f *Filter) checkRule(n int, dir string) error {
	r := &f.Rules[n]
	before := slices.IndexFunc(f.Rules[:n], func(other FilterRule) bool { return other.Name == r.Name })
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
	r.Program = relativeTo(dir, r.Program)
	return nil
}

func (f *Filter) checkSet(n int, dir string) error {
	s := &f.Sets[n]
	before := slices.IndexFunc(f.Sets[:n], func(other FilterSet) bool { return other.Name == s.Name })
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
	s.File = relativeTo(dir, s.File)
	return nil
}

// relativeTo lets a relative path start at a directory.
func relativeTo(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
