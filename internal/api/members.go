// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
)

// checkMembers refuses a request with members that are written in another way than in the type of to, that are there twice, or that lack
// though they are needed. The text is a JSON object that fits to: encoding/json is content with less.
func checkMembers(text []byte, to any) error {
	s := scanner{text: text}
	return s.value(reflect.TypeOf(to))
}

// scanner goes through a valid text of JSON.
type scanner struct {
	text []byte
	at   int
}

// value goes past a value of a type, nil for any.
func (s *scanner) value(t reflect.Type) error {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch s.next() {
	case '{':
		return s.object(t)
	case '[':
		if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
			t = t.Elem()
		} else {
			t = nil
		}
		for s.at++; s.next() != ']'; s.skip(',') {
			if err := s.value(t); err != nil {
				return err
			}
		}
		s.at++
	case '"':
		s.pastQuoted()
	default:
		for s.at < len(s.text) && !strings.ContainsRune(",]} \t\r\n", rune(s.text[s.at])) {
			s.at++
		}
	}
	return nil
}

// object goes past an object.
func (s *scanner) object(t reflect.Type) error {
	known := membersOf(t)
	seen := make(map[string]bool)
	for s.at++; s.next() != '}'; s.skip(',') {
		name := s.name()
		s.skip(':')
		m, ok := known[name]
		switch {
		case known != nil && !ok:
			return &requestError{"the request has no member " + name + ": api.yaml has those that there are, in lower case"}
		case seen[name]:
			return &requestError{"the request has the member " + name + " twice"}
		}
		seen[name] = true
		if err := s.value(m.kind); err != nil {
			return err
		}
	}
	s.at++
	for name, m := range known {
		if m.needed && !seen[name] {
			return &requestError{"the request lacks the member " + name}
		}
	}
	return nil
}

// next returns the first byte that is no white space, 0 at the end.
func (s *scanner) next() byte {
	for ; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case ' ', '\t', '\r', '\n':
		default:
			return s.text[s.at]
		}
	}
	return 0
}

// skip goes past a byte, if it is the next one.
func (s *scanner) skip(c byte) {
	if s.next() == c {
		s.at++
	}
}

// pastQuoted goes past a string, and returns it as it is written. A request may have millions, of which nobody wants to know.
func (s *scanner) pastQuoted() []byte {
	s.next()
	from := s.at
	for s.at++; s.at < len(s.text) && s.text[s.at] != '"'; s.at++ {
		if s.text[s.at] == '\\' {
			s.at++
		}
	}
	s.at++
	return s.text[from:min(s.at, len(s.text))]
}

// name goes past the name of a member, and returns it.
func (s *scanner) name() (text string) {
	const longest = 100
	if raw := s.pastQuoted(); len(raw) <= longest {
		_ = json.Unmarshal(raw, &text) // it is valid
	}
	return text
}

// member is a member of an object.
type member struct {
	kind   reflect.Type
	needed bool
}

// membersOf returns the members of objects of a type, nil if they may have any.
func membersOf(t reflect.Type) map[string]member {
	if t == nil || t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return nil
	}
	all := make(map[string]member)
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && name != "" && name != "-" {
			all[name] = member{f.Type, !strings.Contains(options, "omitempty")}
		}
	}
	return all
}
