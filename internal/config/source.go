// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// source is a configuration file with its drop-ins.
type source struct {
	documents []document // in the order of reading
	// places has the position of each key and table by its full name. Tables of an array have an index, which counts through
	// all documents: "filter.rule[0].name".
	places map[string]place
	// counts has how many tables each array has in the documents so far.
	counts map[string]int
	// torn tells whether a document has a part of a table that is in another one. Then the tables of arrays are not what they seem.
	torn bool
}

// document is one of the files, or a document of a cluster.
type document struct {
	path string
	text []byte
	// remote says that it is of a cluster, and dir where relative paths in it start then.
	remote bool
	dir    string
}

// place is the position of a key: of its value, if the parser knows that.
type place struct {
	document, line, column int
	// leaf tells whether it is a value, and not a table.
	leaf bool
}

// extension is that of configuration files. Only a file with it has drop-ins, since its name says where they are.
const extension = ".toml"

// dropInDir returns the directory of the drop-ins of the file at path, "" if it has none: culvert.d beside culvert.toml, so that
// two data planes whose files are in one directory do not share theirs.
func dropInDir(path string) string {
	stem, ok := strings.CutSuffix(path, extension)
	if !ok || filepath.Base(path) == extension {
		return ""
	}
	return stem + ".d"
}

// dropIns returns the paths of the drop-ins of the file at path, in the order of their names. Names that begin with a dot are
// those of editors' temporary files.
func dropIns(path string) (paths []string, err error) {
	dir := dropInDir(path)
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, &ReadError{dir, plain(err)}
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), extension) && !strings.HasPrefix(e.Name(), ".") {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}

// Files returns the paths of the file at path and of its drop-ins, in the order of reading.
func Files(path string) ([]string, error) {
	paths, err := dropIns(path)
	return append([]string{path}, paths...), err
}

// readSource reads a file and its drop-ins.
func readSource(path string) (*source, error) {
	s := &source{}
	var errs Errors
	paths, err := Files(path)
	errs.Add(err)
	for _, p := range paths {
		text, err := read(p)
		errs.Add(err)
		s.documents = append(s.documents, document{path: p, text: text})
	}
	return s, errs.Err()
}

func read(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, &ReadError{path, plain(err)}
	}
	return b, nil
}

// plain returns the reason of an error about a path, which the caller names.
func plain(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// index finds the positions of all keys in documents that decode without error. It returns an error for each key that two
// documents set: one of the values would be without effect, and nobody would see that in the file that has it.
func (s *source) index() error {
	s.places, s.counts = make(map[string]place), make(map[string]int)
	var errs Errors
	for n := range s.documents {
		errs.Add(s.indexDocument(n))
	}
	return errs.Err()
}

func (s *source) indexDocument(number int) error {
	i := indexer{source: s, document: number, seen: make(map[string]int)}
	i.parser.Reset(s.documents[number].text)
	table := ""
	for i.parser.NextExpression() {
		e := i.parser.Expression()
		switch e.Kind {
		case unstable.Table:
			table = i.joinTables(e)
			i.put(table, header(e), false)
		case unstable.ArrayTable:
			name := i.joinTables(e)
			table = i.element(name)
			i.put(table, header(e), false)
		case unstable.KeyValue:
			i.value(table, e)
		}
	}
	for name, n := range i.seen {
		s.counts[name] += n
	}
	return i.errs.Err()
}

// indexer finds the positions in one document.
type indexer struct {
	*source
	document int
	parser   unstable.Parser
	seen     map[string]int // tables of each array in this document so far
	errs     Errors
}

// put notes the position of a key or table. The first position of a table counts.
func (i *indexer) put(key string, at unstable.Range, leaf bool) {
	start := i.parser.Shape(at).Start
	here := place{i.document, start.Line, start.Column, leaf}
	before, known := i.places[key]
	switch {
	case !known:
		i.places[key] = here
	case leaf && before.document != here.document:
		i.errs.Add(i.locate(here, fmt.Errorf("%s is set at %s:%d:%d already: set it in one file",
			key, i.documents[before.document].path, before.line, before.column)))
	}
}

// Find returns line and column of a key, by its full name, in a TOML document, or of the nearest table around it that the document
// has, 0 if it has none.
func Find(text []byte, key string) (line, column int) {
	s := &source{documents: []document{{text: text}}}
	if s.index() != nil {
		return 0, 0
	}
	at, _ := Position{source: s}.find(key)
	return at.line, at.column
}

// locate returns the error at a place.
func (s *source) locate(p place, err error) error {
	return &Error{File: s.documents[p.document].path, Line: p.line, Column: p.column, Err: err, document: p.document}
}

// element returns the name of the next table of an array.
func (i *indexer) element(name string) string {
	n := i.counts[name] + i.seen[name]
	i.seen[name]++
	return fmt.Sprintf("%s[%d]", name, n)
}

// value notes the positions of a key and of what is inside its value.
func (i *indexer) value(table string, e *unstable.Node) {
	name := joinNodes(table, e.Key())
	at := e.Value().Raw
	if at.Length == 0 { // the parser has no position for a list
		keys := e.Key()
		for keys.Next() {
			at = keys.Node().Raw
		}
	}
	switch {
	case e.Value().Kind == unstable.InlineTable:
		i.put(name, at, false)
		i.inside(name, e.Value())
	case hasTables(e.Value()):
		i.put(name, at, false)
		elements := e.Value().Children()
		for elements.Next() {
			element := i.element(name)
			i.put(element, at, false)
			i.inside(element, elements.Node())
		}
	default:
		i.put(name, at, true)
		i.elements(name, e.Value())
	}
}

// mostElements bounds for how many elements of a list there is a position: a list may have a million addresses.
const mostElements = 100

// elements notes the positions of the elements of a list.
func (i *indexer) elements(name string, list *unstable.Node) {
	if list.Kind != unstable.Array {
		return
	}
	values := list.Children()
	for n := 0; n < mostElements && values.Next(); n++ {
		if at := values.Node().Raw; at.Length > 0 {
			i.put(fmt.Sprintf("%s[%d]", name, n), at, false)
		}
	}
}

// inside notes the positions of the keys in an inline table.
func (i *indexer) inside(table string, inline *unstable.Node) {
	keys := inline.Children()
	for keys.Next() {
		if keys.Node().Kind == unstable.KeyValue {
			i.value(table, keys.Node())
		}
	}
}

// hasTables tells whether a value is a list of inline tables.
func hasTables(value *unstable.Node) bool {
	if value.Kind != unstable.Array {
		return false
	}
	first := value.Children()
	return first.Next() && first.Node().Kind == unstable.InlineTable
}

// joinTables returns the name in the header of a table. A table inside an array of tables belongs to the array's last one so
// far in the document, whose index it adds. An array that only other documents have is an error.
func (i *indexer) joinTables(e *unstable.Node) (path string) {
	keys := e.Key()
	for keys.Next() {
		switch n := i.counts[path] + i.seen[path]; {
		case i.seen[path] > 0:
			path = fmt.Sprintf("%s[%d]", path, n-1)
		case n > 0:
			i.torn = true
			at := i.parser.Shape(header(e)).Start
			i.errs.Add(i.locate(place{document: i.document, line: at.Line, column: at.Column},
				fmt.Errorf("there is no [[%s]] in front of it in this file: a table of a list is in one file, whole", path)))
			path = fmt.Sprintf("%s[%d]", path, n)
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

func joinNodes(path string, keys unstable.Iterator) string {
	for keys.Next() {
		if path != "" {
			path += "."
		}
		path += string(keys.Node().Data)
	}
	return path
}
