// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"reflect"
	"regexp"
	"strings"
)

// flagOrCommand matches flags, and command lines in quotes, which stay.
var flagOrCommand = regexp.MustCompile(`'culvert [^']*'|--[a-z][a-z-]*`)

// otherMembers are the members whose flags have other names.
var otherMembers = map[string]string{"name": "rule", "file": "text", "interface": "interfaces", "encap": "encapsulation"}

// InMembers returns a text about a request with members in place of the flags of the command line: a program has these.
func InMembers(r Request, text string) string {
	kinds := make(map[string]reflect.Kind)
	for _, f := range reflect.VisibleFields(reflect.TypeOf(r).Elem()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		kinds[name] = f.Type.Kind()
	}
	return flagOrCommand.ReplaceAllStringFunc(text, func(s string) string {
		flag, ok := strings.CutPrefix(s, "--")
		if !ok {
			return s
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
