// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// flagOrCommand matches flags, and command lines in quotes.
var flagOrCommand = regexp.MustCompile(`'culvert [^']*'|--[a-z][a-z-]*`)

// otherMembers are the members whose flags have other names.
var otherMembers = map[string]string{"name": "rule", "file": "text", "interface": "interfaces", "encap": "encapsulation"}

// InMembers returns a text about a request with members in place of the flags of the command line, and paths in place of its
// verbs: a program has these.
func InMembers(r Request, text string) string {
	kinds := make(map[string]reflect.Kind)
	for _, f := range reflect.VisibleFields(reflect.TypeOf(r).Elem()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		kinds[name] = f.Type.Kind()
	}
	return flagOrCommand.ReplaceAllStringFunc(text, func(s string) string {
		flag, ok := strings.CutPrefix(s, "--")
		if !ok {
			return pathOf(s)
		}
		name := strings.ReplaceAll(flag, "-", "_")
		if other, ok := otherMembers[flag]; ok {
			name = other
		}
		switch kind := kinds[name]; {
		case kind == reflect.Invalid:
			return s
		case kind == reflect.Bool:
			return name + ": true"
		case name == "check": // an object
			return "check.type"
		}
		return name
	})
}

// pathOf returns the path of the request that does what a command line in quotes does, or the command line if it is not a verb alone.
func pathOf(command string) string {
	words := strings.TrimPrefix(strings.Trim(command, "'"), "culvert ")
	if slices.ContainsFunc(Verbs(), func(v Verb) bool { return v.Words == words }) {
		return "/v1/" + strings.ReplaceAll(words, " ", "/")
	}
	return command
}
