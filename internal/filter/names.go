// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"culvert/internal/filter/filterplane"
)

// maxName bounds the length of names, so that tables and metrics stay readable.
const maxName = 63

// CheckName refuses names that would need quotes on a command line or in a table. Kind is for the error: "rule" or "set".
func CheckName(kind, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the name of a %s is empty", kind)
	case len(name) > maxName:
		return fmt.Errorf("%s %.20s...: its name has %d characters: at most %d", kind, name, len(name), maxName)
	case strings.HasPrefix(name, "-"), strings.HasPrefix(name, "."):
		return fmt.Errorf("%s %q: begin its name with a letter, a digit or _", kind, name)
	}
	if i := strings.IndexFunc(name, func(r rune) bool { return !nameRune(r) }); i >= 0 {
		return fmt.Errorf("%s %q: make its name of letters, digits, dots, _ and -", kind, name)
	}
	return nil
}

func nameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.'
}

// madeUp begins the names that are made up for rules: rule1, rule2 and so on.
const madeUp = "rule"

// freeName makes up a name that no rule of f has or had, since counters in metrics belong to it. f remembers it.
func freeName(f *filterplane.Filter) string {
	rememberNames(f)
	f.Named++
	return madeUp + strconv.Itoa(f.Named)
}

// rememberNames makes f remember the numbers in the names of its rules, before rules are deleted or one gets a name.
func rememberNames(f *filterplane.Filter) {
	for _, r := range f.Rules {
		digits, ok := strings.CutPrefix(r.Name, madeUp)
		if n, err := strconv.ParseUint(digits, 10, 31); ok && err == nil {
			f.Named = max(f.Named, int(n))
		}
	}
}

func indexRule(rules []filterplane.Rule, name string) int {
	return slices.IndexFunc(rules, func(r filterplane.Rule) bool { return r.Name == name })
}

func indexSet(sets []filterplane.Set, name string) int {
	return slices.IndexFunc(sets, func(s filterplane.Set) bool { return s.Name == name })
}

// ParseSetRef parses @name, or !@name for addresses that are not in the set.
func ParseSetRef(s string) (filterplane.SetRef, error) {
	rest, not := strings.CutPrefix(s, "!")
	name, at := strings.CutPrefix(rest, "@")
	if !at {
		return filterplane.SetRef{}, fmt.Errorf("set %q: write it as @name, or !@name for what is not in it", s)
	}
	if err := CheckName("set", name); err != nil {
		return filterplane.SetRef{}, err
	}
	return filterplane.SetRef{Set: name, Not: not}, nil
}

// FormatSetRef formats a reference as ParseSetRef parses it.
func FormatSetRef(r filterplane.SetRef) string {
	if r.Not {
		return "!@" + r.Set
	}
	return "@" + r.Set
}

// tops maps the words for properties of talkers to their numbers.
var tops = map[string]filterplane.TopBy{
	"src": filterplane.TopSrc, "dst": filterplane.TopDst, "prefix": filterplane.TopPrefix, "port": filterplane.TopPort,
}

// ParseBy parses the property by which packets are attributed to talkers: src, dst, prefix or port.
func ParseBy(s string) (filterplane.TopBy, error) {
	by, ok := tops[s]
	if !ok {
		return by, fmt.Errorf("by %q: use src, dst, prefix or port", s)
	}
	return by, nil
}

// FormatBy formats what ParseBy parses. It returns "" for TopOff.
func FormatBy(by filterplane.TopBy) string {
	for name, b := range tops {
		if b == by {
			return name
		}
	}
	return ""
}
