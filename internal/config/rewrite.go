// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"fmt"
	"strings"
)

// Value returns where the value of a key of the table begins: the path or name of the document, line and column. ok is false if no document has
// the key.
func (p Position) Value(key string) (document string, line, column int, ok bool) {
	if p.source == nil {
		return "", 0, 0, false
	}
	at, ok := p.source.places[strings.Trim(p.prefix+"."+key, ".")]
	if !ok || !at.leaf {
		return "", 0, 0, false
	}
	return p.source.documents[at.document].path, at.line, at.column, true
}

// ReplaceString returns a TOML document with another string in the place of the one that begins at a position. The text around it stays.
func ReplaceString(document []byte, line, column int, value string) ([]byte, error) {
	start := 0
	for range line - 1 {
		n := bytes.IndexByte(document[start:], '\n')
		if n < 0 {
			return nil, fmt.Errorf("there is no line %d", line)
		}
		start += n + 1
	}
	start += column - 1
	if start >= len(document) || document[start] != '"' && document[start] != '\'' {
		return nil, fmt.Errorf("there is no string at %d:%d", line, column)
	}
	quote, end := document[start], start+1
	for ; end < len(document) && document[end] != quote; end++ {
		if quote == '"' && document[end] == '\\' {
			end++
		}
	}
	if end >= len(document) || end == start+1 {
		return nil, fmt.Errorf("the string at %d:%d has several lines: write it in one", line, column)
	}
	return bytes.Join([][]byte{document[:start], []byte(`"` + value + `"`), document[end+1:]}, nil), nil
}
