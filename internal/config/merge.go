// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding"
	"reflect"
)

// merge adds what a drop-in has, in src, to what the files before it have, in dst: tables key by key, and the tables of an array
// behind those that are there. No key with a value is in both.
func merge(dst, src reflect.Value) {
	t := src.Type()
	switch {
	case src.IsZero():
	case t.Kind() == reflect.Pointer && isTable(t.Elem()) && !dst.IsNil():
		merge(dst.Elem(), src.Elem())
	case isTable(t):
		for n := range t.NumField() {
			if t.Field(n).Tag.Get("toml") != "" {
				merge(dst.Field(n), src.Field(n))
			}
		}
	case t.Kind() == reflect.Slice && isTable(t.Elem()):
		dst.Set(reflect.AppendSlice(dst, src))
	default:
		dst.Set(src)
	}
}

// isTable tells whether a Go type stands for a table, as opposed to a value that is written as text.
func isTable(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}
