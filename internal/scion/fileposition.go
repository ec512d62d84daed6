// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"culvert/internal/config"
)

// At returns the error with its position in the file: that of the field or, if the file does not have it, of what is around it.
// It is nil for a file that cannot be read.
func (e *fileError) At() *config.Error {
	at := &config.Error{File: e.file, Line: e.line, Column: e.column, Err: e.cause}
	if e.field != "" {
		at.Err = &fieldError{e.field, e.cause}
	}
	raw, err := os.ReadFile(e.file)
	switch {
	case err != nil:
		return nil
	case at.Line != 0:
	case filepath.Ext(e.file) == ".json":
		at.Line, at.Column = jsonPosition(raw, e.field)
	case filepath.Ext(e.file) == ".toml":
		at.Line, at.Column = config.Find(raw, e.field)
	}
	return at
}

// fieldError is an error about a field of a file.
type fieldError struct {
	field string
	cause error
}

func (e *fieldError) Error() string { return e.field + ": " + e.cause.Error() }
func (e *fieldError) Unwrap() error { return e.cause }

// jsonPosition returns line and column of a field, as "border_routers.br1.internal_addr", in a JSON document, or of the innermost
// object around it that the document has, 0 if it has none. Names may have dots.
func jsonPosition(raw []byte, field string) (line, column int) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return 0, 0
	}
	for d.More() {
		start := skipBlank(raw, int(d.InputOffset()))
		key, err := d.Token()
		name, ok := key.(string)
		if err != nil || !ok {
			return line, column
		}
		rest, inside := strings.CutPrefix(field, name+".")
		if name != field && !inside {
			var other json.RawMessage
			if d.Decode(&other) != nil {
				return line, column
			}
			continue
		}
		line, column = lineColumn(raw, start)
		if name == field {
			return line, column
		}
		field = rest
		if t, err := d.Token(); err != nil || t != json.Delim('{') {
			return line, column
		}
	}
	return line, column
}

// skipBlank returns the offset of the next name in an object, behind blanks and a comma.
func skipBlank(raw []byte, offset int) int {
	for offset < len(raw) && strings.IndexByte(" \t\r\n,", raw[offset]) >= 0 {
		offset++
	}
	return offset
}

// lineColumn returns the position of an offset in a document.
func lineColumn(raw []byte, offset int) (line, column int) {
	before := raw[:min(max(offset, 0), len(raw))]
	return 1 + bytes.Count(before, []byte("\n")), len(before) - bytes.LastIndexByte(before, '\n')
}
