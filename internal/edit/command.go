// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// operands are the members that a command line has as arguments, in the order of the request. Others are flags.
var operands = map[string]bool{
	"action": true, "rate": true, "expression": true, "rules": true, "set": true, "entries": true, "service": true, "vip": true, "backend": true,
}

// flagOf are the flags of members that have other names.
var flagOf = map[string]string{"rule": "name", "interfaces": "interface", "encapsulation": "encap", "check-type": "check", "text_name": "file"}

// mostShown bounds how many entries of a list, and how many bytes of a word, a command line shows.
const (
	mostShown     = 8
	mostShownWord = 200
)

// CommandLine returns the arguments of the command line that makes a request, which is JSON, of the verb with these words. What a
// shell would change is quoted. Of long lists and texts it has the beginning: it is for people. A request that is no object is
// returned as it is.
func CommandLine(words string, request []byte) string {
	members, err := inOrder(request)
	if err != nil {
		return strings.TrimSpace(words + " " + string(request))
	}
	line := []string{words}
	var flags []string
	for _, m := range members {
		// A rule's entries are a number, for how many addresses it keeps rates: a flag.
		if operands[m.name] && !(m.name == "entries" && words == "filter add") {
			line = append(line, shown(m.value)...)
			continue
		}
		flags = append(flags, flagWords("", m)...)
	}
	return strings.Join(append(line, flags...), " ")
}

// member is one of an object in JSON.
type member struct {
	name  string
	value any
}

// inOrder reads an object with its members in the order in which they are written, and objects in it in the same way.
func inOrder(object []byte) (members []member, err error) {
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("no object: %q", object)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, err
		}
		m := member{name: fmt.Sprint(name)}
		if raw[0] == '{' {
			m.value, err = inOrder(raw)
		} else {
			inner := json.NewDecoder(bytes.NewReader(raw))
			inner.UseNumber()
			err = inner.Decode(&m.value)
		}
		if err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	return members, nil
}

// flagWords returns the flags that bring a member.
func flagWords(prefix string, m member) (words []string) {
	name := prefix + m.name
	if other, ok := flagOf[name]; ok {
		name = other
	}
	flag := "--" + strings.ReplaceAll(name, "_", "-")
	switch v := m.value.(type) {
	case []member:
		for _, inner := range v {
			words = append(words, flagWords(m.name+"-", inner)...)
		}
	case []any:
		if m.name == "vlans" { // one flag for all
			return []string{flag, quoted(vlanList(v))}
		}
		for _, w := range shown(v) {
			words = append(words, flag, w)
		}
	case bool:
		if v {
			words = append(words, flag)
		}
	default:
		if m.name == "text" {
			return []string{fmt.Sprintf("(%d bytes)", len(fmt.Sprint(v)))}
		}
		words = append(words, flag, quoted(fmt.Sprint(v)))
	}
	return words
}

// vlanList returns a list of VLANs as the flag takes it.
func vlanList(list []any) string {
	if len(list) == 0 {
		return "none"
	}
	words := make([]string, len(list))
	for i, v := range list {
		words[i] = fmt.Sprint(v)
	}
	return strings.Join(words, ",")
}

// shown returns the words of a value, the first ones of a long list.
func shown(value any) (words []string) {
	list, ok := value.([]any)
	if !ok {
		return []string{quoted(fmt.Sprint(value))}
	}
	for i, v := range list {
		if i == mostShown {
			return append(words, fmt.Sprintf("(and %d more)", len(list)-mostShown))
		}
		words = append(words, quoted(fmt.Sprint(v)))
	}
	return words
}

// plain is what a shell leaves as it is.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:,@%+=-]+$`)

// quoted returns a word as a shell takes it.
func quoted(word string) string {
	if len(word) > mostShownWord {
		word = strings.ToValidUTF8(word[:mostShownWord], "") + fmt.Sprintf("... (%d bytes)", len(word))
	}
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
