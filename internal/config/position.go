// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"

	"github.com/pelletier/go-toml/v2/unstable"
)

// position gives ":line:column" of the value of a key in a TOML document that has been decoded
// without error, or "" if it is not there.
func position(document []byte, key string) string {
	var p unstable.Parser
	p.Reset(document)
	table := ""
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = joinNodes("", e.Key())
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
			start := p.Shape(at).Start
			return fmt.Sprintf(":%d:%d", start.Line, start.Column)
		}
	}
	return ""
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
