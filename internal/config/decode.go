// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"reflect"
)

// decode reads a document into a Node, with the tables of parts that the document has.
func decode(path string, document []byte, parts []Part) (*Node, error) {
	n := Node{Mode: ModeNative, Tables: make(map[string]Table)}
	file := newFile(parts)
	node := reflect.ValueOf(&n).Elem()
	for _, f := range nodeFields() {
		file.FieldByName(f.Name).Set(node.FieldByName(f.Name))
	}
	if err := strictDecoder(document).Decode(file.Addr().Interface()); err != nil {
		var list *listError
		if errors.As(err, &list) {
			return nil, fmt.Errorf("%s%s: %w", path, position(document, "workers.cpus"), list)
		}
		return nil, describe(path, document, file.Interface(), err)
	}
	for _, f := range nodeFields() {
		node.FieldByName(f.Name).Set(file.FieldByName(f.Name))
	}
	for i, p := range parts {
		if t := file.FieldByName(partField(i)); !t.IsNil() {
			n.Tables[p.Name] = t.Interface().(Table)
		}
	}
	return &n, nil
}

// newFile returns an empty struct, made at run time, with a field for everything that a file may have: the keys of Node and
// the tables of parts. The decoder needs one struct to tell unknown keys.
func newFile(parts []Part) reflect.Value {
	fields := nodeFields()
	for i, p := range parts {
		fields = append(fields, reflect.StructField{
			Name: partField(i), Type: reflect.TypeOf(p.New()), Tag: reflect.StructTag(fmt.Sprintf("toml:%q", p.Name)),
		})
	}
	return reflect.New(reflect.StructOf(fields)).Elem()
}

// nodeFields returns the fields of Node that are keys of a file.
func nodeFields() (fields []reflect.StructField) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Node]()) {
		if f.Tag.Get("toml") != "-" {
			fields = append(fields, reflect.StructField{Name: f.Name, Type: f.Type, Tag: f.Tag})
		}
	}
	return fields
}

func partField(i int) string { return fmt.Sprintf("Part%d", i) }
