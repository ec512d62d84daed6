// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// fileError is a fault in a configuration file. It prints as one line that names the file and,
// where there is one, the field.
type fileError struct {
	file  string
	field string
	cause error
	// line and column are 0 if the decoder has not told them.
	line, column int
}

// atPosition adds a decoder's position to a *fileError.
func atPosition(err error, line, column int) error {
	var e *fileError
	if errors.As(err, &e) {
		e.line, e.column = line, column
	}
	return err
}

func (e *fileError) Error() string {
	if e.field == "" {
		return fmt.Sprintf("reading %s: %v", e.file, e.cause)
	}
	return fmt.Sprintf("reading %s: %s: %v", e.file, e.field, e.cause)
}

func (e *fileError) Unwrap() error { return e.cause }

// badField returns a function that makes errors about fields of one file.
func badField(file string) func(field, format string, args ...any) error {
	return func(field, format string, args ...any) error {
		return &fileError{file: file, field: field, cause: fmt.Errorf(format, args...)}
	}
}

// cannotRead wraps an error of opening or reading file without naming the file twice.
func cannotRead(file string, err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return &fileError{file: file, cause: err}
}

// missing is cannotRead for a file below general.config_dir of the TOML file toml. If the file does not exist, the error
// also names that setting, which may be wrong.
func missing(file, toml, what string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return cannotRead(file, err)
	}
	return &fileError{file: file, cause: fmt.Errorf(
		"no such file: put %s there or correct general.config_dir in %s", what, toml)}
}

// oneLine turns an error of the SCION libraries, whose text can span lines, into one line.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
