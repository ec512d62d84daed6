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
	return Closest(path[len(path)-1], names(t))
}

// Closest returns the name that somebody may have meant by a wrong word, "" if none is similar.
func Closest(wrong string, names []string) string {
	wrong = strings.ToLower(wrong)
	// A word that differs in more than a third of its letters is another word.
	best, least := "", max(1, len(wrong)/3)+1
	for _, name := range names {
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

// distance returns how many letters have to be added, removed, replaced or swapped with the next one to make b of a (the
// optimal string alignment distance).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			d := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				d = min(d, rows[i-1][j], rows[i][j-1]) + 1
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
