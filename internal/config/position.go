// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2/unstable"
)

// Position is where a table stands in a file. A struct for a table has one embedded.
type Position struct {
	path     string
	document []byte
	prefix   string
}

// In is the position of a table in this one, or below it: "vip[0].check".
func (p Position) In(table string) Position {
	p.prefix = strings.TrimPrefix(p.prefix+"."+table, ".")
	return p
}

// Key is the whole name of the table.
func (p Position) Key() string { return p.prefix }

// Path is the file.
func (p Position) Path() string { return p.path }

// Relative lets a relative path start at the file's directory.
func (p Position) Relative(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(p.path), path)
}

// Locate puts file, line and column of a key in front of an error; "" is the table itself.
func (p Position) Locate(key string, err error) error {
	for key = strings.Trim(p.prefix+"."+key, "."); key != ""; {
		if at := position(p.document, key); at != "" {
			return fmt.Errorf("%s%s: %w", p.path, at, err)
		}
		// Not there, or a table or a list in one line: what it is in.
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	return fmt.Errorf("%s: %w", p.path, err)
}

// Locator has a position.
type Locator interface {
	Locate(key string, err error) error
}

// Duration reads a time that a key of the table at l has, as "1m30s"; 0 for no text.
func Duration(l Locator, key, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, l.Locate(key, fmt.Errorf("%s = %q is no time: write it as 500ms, 1s or 15m", key, text))
	}
	return d, nil
}

// position gives ":line:column" of the value of a key in a TOML document that has been decoded
// without error, or "" if it is not there. The tables of an array are "filter.rule[0]" and so on, and what is in them
// "filter.rule[0].name"; a table alone is where its head stands.
func position(document []byte, key string) string {
	var p unstable.Parser
	p.Reset(document)
	table := ""
	seen := make(map[string]int)
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table:
			table = joinTables(seen, e.Key())
			if table == key {
				return lineColumn(&p, headOf(e))
			}
		case unstable.ArrayTable:
			name := joinTables(seen, e.Key())
			table = fmt.Sprintf("%s[%d]", name, seen[name])
			seen[name]++
			if table == key {
				return lineColumn(&p, headOf(e))
			}
		case unstable.KeyValue:
			if joinNodes(table, e.Key()) != key {
				continue
			}
			at := e.Value().Raw
			if at.Length == 0 { // a list has no place of its own
				keys := e.Key()
				for keys.Next() {
					at = keys.Node().Raw
				}
			}
			return lineColumn(&p, at)
		}
	}
	return ""
}

// joinTables is joinNodes for the head of a table, which may be in the last ones of arrays of tables.
func joinTables(seen map[string]int, keys unstable.Iterator) (path string) {
	for keys.Next() {
		if n := seen[path]; n > 0 {
			path = fmt.Sprintf("%s[%d]", path, n-1)
		}
		if path != "" {
			path += "."
		}
		path += string(keys.Node().Data)
	}
	return path
}

// headOf is where the head of a table stands.
func headOf(e *unstable.Node) unstable.Range {
	keys := e.Key()
	keys.Next()
	return keys.Node().Raw
}

func lineColumn(p *unstable.Parser, at unstable.Range) string {
	start := p.Shape(at).Start
	return fmt.Sprintf(":%d:%d", start.Line, start.Column)
}

func joinNodes(path string, keys unstable.Iterator) string {
	for keys.Next() {
		if path != "" {
			path += "."
		}
		path += string(keys.Node().Data)
	}
	return path
}
