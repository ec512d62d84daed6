// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"reflect"
)

// decode reads a document into a Node and the tables of the parts that it has.
func decode(path string, document []byte, parts []Part) (*Node, error) {
	n := Node{Mode: ModeNative, Tables: make(map[string]Table)}
	whole := wholeFile(parts)
	own := reflect.ValueOf(&n).Elem()
	for _, f := range nodeFields() {
		whole.FieldByName(f.Name).Set(own.FieldByName(f.Name))
	}
	if err := strictDecoder(document).Decode(whole.Addr().Interface()); err != nil {
		var list *listError
		if errors.As(err, &list) {
			return nil, fmt.Errorf("%s%s: %w", path, position(document, "workers.cpus"), list)
		}
		return nil, located(path, document, whole.Interface(), err)
	}
	for _, f := range nodeFields() {
		own.FieldByName(f.Name).Set(whole.FieldByName(f.Name))
	}
	for i, p := range parts {
		if t := whole.FieldByName(partField(i)); !t.IsNil() {
			n.Tables[p.Name] = t.Interface().(Table)
		}
	}
	return &n, nil
}

// wholeFile is a struct for all that a file may have: the node's keys and the tables of the parts.
func wholeFile(parts []Part) reflect.Value {
	fields := nodeFields()
	for i, p := range parts {
		fields = append(fields, reflect.StructField{
			Name: partField(i), Type: reflect.TypeOf(p.New()), Tag: reflect.StructTag(fmt.Sprintf("toml:%q", p.Name)),
		})
	}
	return reflect.New(reflect.StructOf(fields)).Elem()
}

// nodeFields are those of Node that a file has.
func nodeFields() (fields []reflect.StructField) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Node]()) {
		if f.Tag.Get("toml") != "-" {
			fields = append(fields, reflect.StructField{Name: f.Name, Type: f.Type, Tag: f.Tag})
		}
	}
	return fields
}

func partField(i int) string { return fmt.Sprintf("Part%d", i) }
