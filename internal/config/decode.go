// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"reflect"
)

// decode reads the documents into a Node, with the tables of parts that they have. Beside errors it returns the Node if they are
// only about keys that are not known, or are in two documents.
func (s *source) decode(parts []Part) (*Node, error) {
	n := &Node{Tables: make(map[string]Table), Position: Position{source: s}}
	var errs Errors
	whole, broken := newFile(parts), false
	for number, d := range s.documents {
		if !d.remote {
			n.Files = append(n.Files, d.path)
		}
		file := newFile(parts)
		err := strictDecoder(d.text).Decode(file.Addr().Interface())
		if err != nil {
			err, unknown := s.describeDecode(number, file.Addr().Interface(), err)
			errs.Add(err)
			broken = broken || !unknown
		}
		merge(whole, file)
	}
	if broken {
		return nil, errs.Err()
	}
	errs.Add(s.checkRemote())
	errs.Add(s.index())
	if s.torn {
		return nil, errs.Err()
	}
	node := reflect.ValueOf(n).Elem()
	for _, f := range nodeFields() {
		node.FieldByName(f.Name).Set(whole.FieldByName(f.Name))
	}
	if !n.has("mode") {
		n.Mode = ModeNative
	}
	for i, p := range parts {
		if t := whole.FieldByName(partField(i)); !t.IsNil() {
			n.Tables[p.Name] = t.Interface().(Table)
		}
	}
	return n, errs.Err()
}

// describeDecode is describe, and knows the error to which the decoder adds no position.
func (s *source) describeDecode(number int, keys any, err error) (_ error, unknown bool) {
	var list *listError
	if !errors.As(err, &list) {
		return s.describe(number, keys, err)
	}
	alone := &source{documents: s.documents[number : number+1]}
	_ = alone.index() // a document by itself has each key once
	at := alone.places["workers.cpus"]
	at.document = number
	return s.locate(at, list), false
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
		if key := f.Tag.Get("toml"); key != "" && key != "-" {
			fields = append(fields, reflect.StructField{Name: f.Name, Type: f.Type, Tag: f.Tag})
		}
	}
	return fields
}

func partField(i int) string { return fmt.Sprintf("Part%d", i) }
