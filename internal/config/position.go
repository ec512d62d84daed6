// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"

	"github.com/pelletier/go-toml/v2/unstable"
)

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
