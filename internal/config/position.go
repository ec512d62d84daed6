// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2/unstable"
)

// Position is the position of a table in a file. The struct of a table embeds it.
type Position struct {
	path     string
	document []byte
	prefix   string
}

// In returns the position of a table inside this one, at any depth: "vip[0].check".
func (p Position) In(table string) Position {
	p.prefix = strings.TrimPrefix(p.prefix+"."+table, ".")
	return p
}

// Key returns the full name of the table: "lb.vip[0]".
func (p Position) Key() string { return p.prefix }

// Path returns the path of the file.
func (p Position) Path() string { return p.path }

// Relative returns a path of the file's content, where a relative path is relative to the file's directory.
func (p Position) Relative(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(p.path), path)
}

// Locate puts file, line and column of a key of the table in front of an error. The key "" is the table itself. If the file
// does not have the key, Locate uses the position of the nearest table around it that the file has.
func (p Position) Locate(key string, err error) error {
	for key = strings.Trim(p.prefix+"."+key, "."); key != ""; {
		if at := position(p.document, key); at != "" {
			return fmt.Errorf("%s%s: %w", p.path, at, err)
		}
		// The key is not in the file, or is part of an inline table or list, which has no position of its own.
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	return fmt.Errorf("%s: %w", p.path, err)
}

// Locator puts the position of a key in front of an error, as Position does.
type Locator interface {
	Locate(key string, err error) error
}

// Duration parses the value of a key in the table at l, such as "1m30s". It returns 0 for "". The error has the position.
func Duration(l Locator, key, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err == nil && d <= 0 {
		return 0, l.Locate(key, fmt.Errorf("%s = %q is too short: write a time above 0, as 500ms, 1s or 15m", key, text))
	}
	if err != nil {
		return 0, l.Locate(key, fmt.Errorf("%s = %q is not a duration: write it as 500ms, 1s or 15m", key, text))
	}
	return d, nil
}

// position returns ":line:column" of the value of a key in a TOML document that decodes without error, "" if the key is not
// there. Tables of an array have an index: "filter.rule[0].name". The position of a table is that of its header.
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
				return lineColumn(&p, header(e))
			}
		case unstable.ArrayTable:
			name := joinTables(seen, e.Key())
			table = fmt.Sprintf("%s[%d]", name, seen[name])
			seen[name]++
			if table == key {
				return lineColumn(&p, header(e))
			}
		case unstable.KeyValue:
			if joinNodes(table, e.Key()) != key {
				continue
			}
			at := e.Value().Raw
			if at.Length == 0 { // the parser has no position for a list
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

// joinTables returns the name in the header of a table. A table inside an array of tables belongs to the array's last one so
// far, whose index it adds. seen counts the tables of each array.
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

// header returns the range of the first key in the header of a table.
func header(e *unstable.Node) unstable.Range {
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
