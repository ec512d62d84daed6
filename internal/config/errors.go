// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Error is an error at a position in a configuration file.
type Error struct {
	// File is the path of the file. Line and Column count from 1; they are 0 for an error about the file as a whole.
	File         string
	Line, Column int
	Err          error

	document int // number of the file in the order of reading
}

// Error returns the error in one line, with file, line and column in front.
func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d:%d: %v", e.File, e.Line, e.Column, e.Err)
}

// Unwrap returns the error without its position.
func (e *Error) Unwrap() error { return e.Err }

// ReadError is the error of reading a configuration file or a directory of drop-ins.
type ReadError struct {
	Path string
	Err  error
}

// Error returns the error in one line.
func (e *ReadError) Error() string { return fmt.Sprintf("reading %s: %v", e.Path, e.Err) }

// Unwrap returns the reason.
func (e *ReadError) Unwrap() error { return e.Err }

// Errors collects errors, so that one look at a configuration finds many. Its text is one line, as that of every other error.
type Errors []error

// Add adds an error. Errors within another Errors are added one by one; nil is not added.
func (e *Errors) Add(err error) { *e = append(*e, All(err)...) }

// Err returns nil without errors, the only error if there is one, and otherwise all.
func (e Errors) Err() error {
	switch len(e) {
	case 0:
		return nil
	case 1:
		return e[0]
	}
	return e
}

// Error returns the text of the first error, and how many there are besides.
func (e Errors) Error() string {
	if len(e) == 1 {
		return e[0].Error()
	}
	return fmt.Sprintf("%v (and %d more: 'culvert check' shows them)", e[0], len(e)-1)
}

// Unwrap returns the errors.
func (e Errors) Unwrap() []error { return e }

// All returns the errors that err consists of, none for nil.
func All(err error) []error {
	if err == nil {
		return nil
	}
	var list Errors
	if errors.As(err, &list) {
		return list
	}
	return []error{err}
}

// Sorted returns the errors that err consists of in the order of their positions, each once.
func Sorted(err error) []error {
	all := slices.Clone(All(err))
	slices.SortStableFunc(all, comparePositions)
	return slices.CompactFunc(all, func(a, b error) bool { return a.Error() == b.Error() })
}

// comparePositions sorts errors by their positions. Those without one come last.
func comparePositions(a, b error) int {
	var at, other *Error
	known, otherKnown := errors.As(a, &at), errors.As(b, &other)
	switch {
	case known && otherKnown:
		return cmp.Or(cmp.Compare(at.document, other.document), cmp.Compare(at.File, other.File), cmp.Compare(at.Line, other.Line), cmp.Compare(at.Column, other.Column))
	case known:
		return -1
	case otherKnown:
		return 1
	}
	return 0
}
