// SPDX-License-Identifier: Apache-2.0

// Package config reads culvert's own configuration: one TOML file for a node. What is said of a stage stands in a table of
// the stage's own.
package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/pelletier/go-toml/v2"

	"culvert/internal/config/tomltext"
)

// Modes of attaching.
const (
	// ModeNative runs in the driver.
	ModeNative = "native"
	// ModeGeneric runs in the kernel's generic hook, slowly, on any driver.
	ModeGeneric = "generic"
)

// Node is what a file says of everything that culvert does on a host.
type Node struct {
	// Mode is ModeNative, the default, or ModeGeneric.
	Mode string `toml:"mode"`
	// Interfaces to attach to. Without them, those that carry the addresses of the stages.
	Interfaces []string `toml:"interfaces"`
	// Missing says what becomes of the start without some of the interfaces, Detached what the process does when the
	// data plane is taken away from it.
	Missing  string `toml:"missing"`
	Detached string `toml:"detached"`
	// Workers are nil if packets stay on the CPU that they come in on.
	Workers *Workers `toml:"workers"`
	// Name tells a data plane from others, unless a table says it (Namer).
	Name string `toml:"name"`
	// Metrics is the address that serves them, unless a table says it: "127.0.0.1:9441".
	Metrics string `toml:"metrics"`

	// Tables are those of the stages that the file has, by name.
	Tables map[string]Table `toml:"-"`
}

// Table is the table of a stage: a pointer to a struct.
type Table interface {
	// Check fills in defaults, and refuses what contradicts itself, with its position.
	Check(at Position) error
}

// Namer is a Table that leads to a file of its own, which says what the data plane is called and where its metrics are. Its
// stage has a slow path in the process.
type Namer interface {
	// NamedIn is that file.
	NamedIn() string
}

// Part is a table that a file may have.
type Part struct {
	Name string
	New  func() Table
}

// DefaultName is what a data plane is called that nobody has named.
const DefaultName = "culvert"

// namer is the table that leads to a file of its own, and its name; nil for none.
func (n *Node) namer() (name string, _ Namer) {
	for name, t := range n.Tables {
		if namer, ok := t.(Namer); ok {
			return name, namer
		}
	}
	return "", nil
}

// IsNode tells whether the TOML file at path looks like one for Load, and not like the reference
// router's: that one has none of culvert's keys. A file that is no TOML is not one for Load.
func IsNode(path string, parts []Part) (bool, error) {
	b, err := read(path)
	if err != nil {
		return false, err
	}
	var tables map[string]any
	if err := toml.Unmarshal(b, &tables); err != nil {
		return false, nil
	}
	keys := []string{"mode", "interfaces", "missing", "detached", "workers"}
	for _, p := range parts {
		keys = append(keys, p.Name)
	}
	for _, key := range keys {
		if _, ok := tables[key]; ok {
			return true, nil
		}
	}
	return false, nil
}

func read(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return b, nil
}

// Load reads and checks the file at path, which may have the tables of the parts. An error is one line with the file and,
// where there is one, line and column.
func Load(path string, parts []Part) (*Node, error) {
	b, err := read(path)
	if err != nil {
		return nil, err
	}
	n, err := decode(path, b, parts)
	if err != nil {
		return nil, err
	}
	at := Position{path: path, document: b}
	if err := n.check(at, parts); err != nil {
		return nil, err
	}
	if err := n.checkLife(at); err != nil {
		return nil, err
	}
	if err := n.Workers.check(at.In("workers")); err != nil {
		return nil, err
	}
	for _, p := range parts {
		if t, ok := n.Tables[p.Name]; ok {
			if err := t.Check(at.In(p.Name)); err != nil {
				return nil, err
			}
		}
	}
	if err := n.checkAlone(at); err != nil {
		return nil, err
	}
	return n, nil
}

// located puts file, line and column in front of what is wrong; keys is what could have been decoded into.
func located(path string, document []byte, keys any, err error) error {
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) && len(strict.Errors) > 0 {
		e := strict.Errors[0]
		row, col := e.Position()
		return fmt.Errorf("%s:%d:%d: unknown key %q%s: see 'culvert run --help' for the keys there are",
			path, row, col, strings.Join(e.Key(), "."), tomltext.DidYouMean(keys, e.Key()))
	}
	var decode *toml.DecodeError
	if errors.As(err, &decode) {
		row, col := decode.Position()
		return fmt.Errorf("%s:%d:%d: %s", path, row, col, cmp.Or(tomltext.Unquoted(document, row, col), tomltext.Plain(decode)))
	}
	return fmt.Errorf("%s: %w", path, err)
}

func strictDecoder(b []byte) *toml.Decoder {
	return toml.NewDecoder(bytes.NewReader(b)).DisallowUnknownFields()
}

func (n *Node) check(at Position, parts []Part) error {
	if n.Mode != ModeNative && n.Mode != ModeGeneric {
		return at.Locate("mode", fmt.Errorf("mode = %q: use %q or %q", n.Mode, ModeNative, ModeGeneric))
	}
	for i, name := range n.Interfaces {
		if slices.Contains(n.Interfaces[:i], name) {
			return at.Locate("interfaces", fmt.Errorf("interfaces names %s twice: leave one out", name))
		}
	}
	if len(n.Tables) > 0 {
		return nil
	}
	var names []string
	for _, p := range parts {
		names = append(names, "a ["+p.Name+"]")
	}
	last := len(names) - 1
	return at.Locate("", fmt.Errorf("no stage is on: add %s or %s table", strings.Join(names[:last], ", "), names[last]))
}

// checkAlone looks at what is said once for the node unless a stage's own file says it.
func (n *Node) checkAlone(at Position) error {
	if table, namer := n.namer(); namer != nil {
		for key, value := range map[string]string{"name": n.Name, "metrics": n.Metrics} {
			if value != "" {
				return at.Locate(key, fmt.Errorf("%s = %q beside [%s]: the router's own file says it (%s)", key, value, table, namer.NamedIn()))
			}
		}
		return nil
	}
	if n.Name == "" {
		n.Name = DefaultName
	}
	if strings.ContainsFunc(n.Name, func(r rune) bool { return r == '/' || r == ' ' || !unicode.IsPrint(r) }) {
		return at.Locate("name", fmt.Errorf("name = %q: leave out slashes, blanks and what cannot be printed", n.Name))
	}
	if len(n.Interfaces) == 0 {
		return at.Locate("", errors.New("interfaces is missing: name those to attach to"))
	}
	if slices.Contains(n.Interfaces, "") {
		return at.Locate("interfaces", errors.New("interfaces has an empty name: leave it out"))
	}
	if n.Metrics != "" {
		if _, _, err := net.SplitHostPort(n.Metrics); err != nil {
			return at.Locate("metrics", fmt.Errorf("metrics = %q: use address:port", n.Metrics))
		}
	}
	return nil
}
