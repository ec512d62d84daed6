// SPDX-License-Identifier: Apache-2.0

// Package config reads culvert's configuration: one TOML file for a node. Each stage has a table in it.
package config

import (
	"bytes"
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
	// ModeNative runs the programs in the driver.
	ModeNative = "native"
	// ModeGeneric runs the programs in the kernel's generic hook, which is slower and works with any driver.
	ModeGeneric = "generic"
)

// Node is a configuration file: all that culvert does on a host.
type Node struct {
	// Mode is ModeNative, the default, or ModeGeneric.
	Mode string `toml:"mode"`
	// Interfaces are those to attach to. If there are none, a stage with a Namer finds them by its addresses.
	Interfaces []string `toml:"interfaces"`
	// Missing says what a start does if an interface does not exist: one of Missing*.
	Missing string `toml:"missing"`
	// Detached says what the process does if somebody else detaches its data plane: one of Detached*.
	Detached string `toml:"detached"`
	// Workers is nil if packets stay on the CPU that receives them.
	Workers *Workers `toml:"workers"`
	// Name is the name of the data plane. A file with a Namer has none.
	Name string `toml:"name"`
	// Metrics is the address that serves metrics, such as "127.0.0.1:9441". A file with a Namer has none.
	Metrics string `toml:"metrics"`

	// Tables are the tables of stages that the file has, by name.
	Tables map[string]Table `toml:"-"`
}

// Table is the table of a stage: a pointer to a struct.
type Table interface {
	// Check fills in defaults. It returns an error with its position for values that are not possible or contradict others.
	Check(at Position) error
}

// Namer is a Table that refers to a configuration file of the stage, which has the name of the data plane and the address of
// its metrics. Such a stage has a slow path in the process.
type Namer interface {
	// NamedIn returns the path of that file.
	NamedIn() string
}

// Part is a table that a file may have.
type Part struct {
	Name string
	// New returns a new, empty table.
	New func() Table
}

// DefaultName is the name of a data plane for which the file has no name.
const DefaultName = "culvert"

// namer returns the table that is a Namer, and its name in the file, nil if there is none.
func (n *Node) namer() (name string, _ Namer) {
	for name, t := range n.Tables {
		if namer, ok := t.(Namer); ok {
			return name, namer
		}
	}
	return "", nil
}

// IsNode tells whether the TOML file at path is one for Load, as opposed to the reference router's, which has none of
// culvert's keys. It returns false for a file that is not TOML.
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

// isRouters tells whether a document is the configuration of the SCION reference router: that needs an ID and a directory.
func isRouters(document []byte) bool {
	var file struct {
		General struct {
			ID        string `toml:"id"`
			ConfigDir string `toml:"config_dir"`
		} `toml:"general"`
	}
	// The decoder goes on after a value of a wrong type, which a file of culvert's may have.
	_ = toml.Unmarshal(document, &file)
	return file.General.ID != "" && file.General.ConfigDir != ""
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

// Load reads and checks the file at path, which may have the tables of parts. Errors are one line, with the file and, if
// there is a position, line and column in front.
func Load(path string, parts []Part) (*Node, error) {
	b, err := read(path)
	if err != nil {
		return nil, err
	}
	n, err := decode(path, b, parts)
	if err != nil {
		if isRouters(b) {
			return nil, fmt.Errorf("%s looks like the reference router's own file: run it with 'culvert scion run -c %[1]s', or name it "+
				"as config in the [scion] table of a file of culvert's", path)
		}
		return nil, err
	}
	at := Position{path: path, document: b}
	if err := n.check(at, parts); err != nil {
		return nil, err
	}
	if err := n.checkLifecycle(at); err != nil {
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
	if err := n.checkNames(at); err != nil {
		return nil, err
	}
	return n, nil
}

// describe rewrites an error of the decoder: file, line and column in front, and words for people who do not know Go. keys is
// the struct that the file was decoded into.
func describe(path string, document []byte, keys any, err error) error {
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
		if unquoted := tomltext.Unquoted(document, row, col); unquoted != "" {
			return fmt.Errorf("%s:%d:%d: %s", path, row, col, unquoted)
		}
		key := strings.Join(decode.Key(), ".")
		if key != "" {
			key += ": "
		}
		return fmt.Errorf("%s:%d:%d: %s%s", path, row, col, key, tomltext.Plain(decode))
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
		names = append(names, "["+p.Name+"]")
	}
	last := len(names) - 1
	return at.Locate("", fmt.Errorf("no stage is on: add the table %s or %s", strings.Join(names[:last], ", "), names[last]))
}

// checkNames checks name, interfaces and metrics. With a Namer the stage's own file has name and metrics.
func (n *Node) checkNames(at Position) error {
	if table, namer := n.namer(); namer != nil {
		for key, value := range map[string]string{"name": n.Name, "metrics": n.Metrics} {
			if value != "" {
				return at.Locate(key, fmt.Errorf("%s = %q beside [%s]: leave it out, the router's own file has it (%s)", key, value, table, namer.NamedIn()))
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
		return at.Locate("", errors.New("interfaces is missing: name the interfaces to attach to"))
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
