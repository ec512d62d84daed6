// SPDX-License-Identifier: Apache-2.0

package tomltext

import (
	"fmt"
	"reflect"
	"strings"
)

// Nearest returns the key that somebody may have meant by an unknown one, "" if none is similar. It looks in the same table
// of the struct that the file is decoded into. path has the names of the tables and, last, the unknown key.
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
	// A word that differs in more than a third of its letters is another word.
	best, least := "", max(1, len(wrong)/3)+1
	for _, name := range names(t) {
		if d := distance(wrong, name); d < least {
			best, least = name, d
		}
	}
	return best
}

// DidYouMean returns the key of Nearest as a question in parentheses, with a space in front, or "".
func DidYouMean(into any, path []string) string {
	if name := Nearest(into, path); name != "" {
		return fmt.Sprintf(" (did you mean %q?)", name)
	}
	return ""
}

// table returns the struct type behind pointers and slices, nil if there is none.
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

// distance returns the Levenshtein distance of two words.
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
