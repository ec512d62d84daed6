// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Position is the position of a table in a configuration. The struct of a table embeds it. Without a file, errors have no
// position.
type Position struct {
	source *source
	prefix string
}

// In returns the position of a table inside this one, at any depth: "vip[0].check".
func (p Position) In(table string) Position {
	p.prefix = strings.TrimPrefix(p.prefix+"."+table, ".")
	return p
}

// Key returns the full name of the table: "lb.vip[0]".
func (p Position) Key() string { return p.prefix }

// find returns the place of a key of the table, or of the nearest table around it that has one.
func (p Position) find(key string) (place, bool) {
	for key = strings.Trim(p.prefix+"."+key, "."); key != ""; {
		if at, ok := p.source.places[key]; ok {
			return at, true
		}
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	return place{}, false
}

// has tells whether a file sets a key of the table.
func (p Position) has(key string) bool {
	_, ok := p.source.places[strings.Trim(p.prefix+"."+key, ".")]
	return ok
}

// PathOf returns the path of the file that has a key of the table.
func (p Position) PathOf(key string) string {
	if p.source == nil {
		return ""
	}
	at, _ := p.find(key)
	return p.source.documents[at.document].path
}

// Relative returns a path that is the value of a key of the table, where a relative path starts at the directory of the file
// that has the key, or for a document of a cluster at its Dir.
func (p Position) Relative(key, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	if p.source != nil {
		if at, _ := p.find(key); p.source.documents[at.document].remote {
			return filepath.Join(p.source.documents[at.document].dir, path)
		}
	}
	return filepath.Join(filepath.Dir(p.PathOf(key)), path)
}

// Locate puts file, line and column of a key of the table in front of an error. The key "" is the table itself. If the file
// does not have the key, Locate uses the position of the nearest table around it that the file has.
func (p Position) Locate(key string, err error) error {
	if p.source == nil {
		return err
	}
	at, _ := p.find(key)
	return p.source.locate(at, err)
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
