// SPDX-License-Identifier: Apache-2.0

package tomltext

import (
	"fmt"
	"reflect"
	"strings"
)

// Nearest returns a key that somebody may have meant by an unknown one: one of the same table of the structure that the
// file is decoded into. Path has the tables' names and the key. It is "" if none is near.
func Nearest(into any, path []string) string {
	if len(path) == 0 {
		return ""
	}
	t := table(reflect.TypeOf(into))
	for _, name := range path[:len(path)-1] {
		f, ok := fieldOf(t, name)
		if !ok {
			return ""
		}
		t = table(f)
	}
	if t == nil {
		return ""
	}
	wrong := strings.ToLower(path[len(path)-1])
	// What is further away than a third of the word is another word.
	best, least := "", max(1, len(wrong)/3)+1
	for _, name := range names(t) {
		if d := distance(wrong, name); d < least {
			best, least = name, d
		}
	}
	return best
}

// DidYouMean is Nearest in parentheses, or "".
func DidYouMean(into any, path []string) string {
	if name := Nearest(into, path); name != "" {
		return fmt.Sprintf(" (did you mean %q?)", name)
	}
	return ""
}

// table is the structure behind pointers and lists, nil if there is none.
func table(t reflect.Type) reflect.Type {
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice) {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	return t
}

func key(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("toml"), ",")
	if name == "-" {
		return ""
	}
	return name
}

func fieldOf(t reflect.Type, name string) (reflect.Type, bool) {
	if t == nil {
		return nil, false
	}
	for n := range t.NumField() {
		if key(t.Field(n)) == name {
			return t.Field(n).Type, true
		}
	}
	return nil, false
}

func names(t reflect.Type) (all []string) {
	for n := range t.NumField() {
		f := t.Field(n)
		switch name := key(f); {
		case name != "":
			all = append(all, name)
		case f.Anonymous && table(f.Type) != nil:
			all = append(all, names(table(f.Type))...)
		}
	}
	return all
}

// distance is the edit distance of Levenshtein: insertions, deletions and substitutions.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := before
			if a[i] != b[j] {
				d = min(before, row[j], row[j+1]) + 1
			}
			before, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}
