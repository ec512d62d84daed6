// SPDX-License-Identifier: Apache-2.0

// Package config reads culvert's configuration: one TOML file for a node. Each stage has a table in it.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"net"
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
	// LogLevel is the least level of what the process logs: "debug", "info", "warn" or "error".
	LogLevel string `toml:"log_level"`
	// Metrics is the address that serves metrics, such as "127.0.0.1:9441". A file with a Namer has none.
	Metrics string `toml:"metrics"`
	// Web is nil without a page to look at.
	Web *Web `toml:"web"`
	// Cluster is nil for a node that is part of no cluster.
	Cluster *Cluster `toml:"cluster"`

	// Tables are the tables of stages that the file has, by name.
	Tables map[string]Table `toml:"-"`
	// Files are the paths of the file and of its drop-ins, in the order of reading.
	Files []string `toml:"-"`

	// Position is that of the file.
	Position `toml:"-"`
}

// Table is the table of a stage: a pointer to a struct.
type Table interface {
	// Check fills in defaults. It returns an error with its position for values that are not possible or contradict others.
	Check(at Position) error
}

// Salvager is a Table that Check leaves without the parts that have errors. So the rest can be looked at, too.
type Salvager interface{ Salvaged() }

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

// Mentions tells whether a file has the table, also if LoadAll has left it out.
func (n *Node) Mentions(table string) bool {
	if n.source != nil {
		for key := range n.source.places {
			if key == table || strings.HasPrefix(key, table+".") || strings.HasPrefix(key, table+"[") {
				return true
			}
		}
	}
	return n.Tables[table] != nil
}

// IsNode tells whether the TOML file at path is one for Load, as opposed to the reference router's, which has none of
// culvert's keys and no drop-ins. A file of comments alone is one for Load, as installed. IsNode returns false for a file that is
// not TOML.
func IsNode(path string, parts []Part) (bool, error) {
	b, err := read(path)
	if err != nil {
		return false, err
	}
	var tables map[string]any
	if err := toml.Unmarshal(b, &tables); err != nil {
		return false, nil
	}
	if len(tables) == 0 && len(bytes.TrimSpace(b)) > 0 {
		return true, nil
	}
	keys := []string{"mode", "interfaces", "missing", "detached", "workers", "web", ClusterTable}
	for _, p := range parts {
		keys = append(keys, p.Name)
	}
	for _, key := range keys {
		if _, ok := tables[key]; ok {
			return true, nil
		}
	}
	if isRouters(b) {
		return false, nil
	}
	more, err := dropIns(path)
	return len(more) > 0, err
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

// Load reads and checks the file at path with its drop-ins, which may have the tables of parts. Errors are one line, with the
// file and, if there is a position, line and column in front. Several of them are Errors.
// Documents of a cluster, in more, are merged behind the files in the same way.
func Load(path string, parts []Part, more ...Remote) (*Node, error) {
	n, err := LoadAll(path, parts, more...)
	if err != nil {
		return nil, err
	}
	return n, nil
}

// LoadAll is Load for a look that wants all errors. Beside errors it returns what could be read, without workers that have errors and
// the tables of stages that have errors and are no Salvager (Mentions tells of them), or nil if the files cannot be decoded.
func LoadAll(path string, parts []Part, more ...Remote) (*Node, error) {
	s, err := readSource(path)
	if err != nil {
		return nil, err
	}
	s.addRemote(more)
	var errs Errors
	n, err := s.decode(parts)
	if err != nil && isRouters(s.documents[0].text) {
		return nil, fmt.Errorf("%s looks like the reference router's own file: run it with 'culvert scion run -c %[1]s', or name it "+
			"as config in the [scion] table of a file of culvert's", path)
	}
	errs.Add(err)
	if n == nil {
		return nil, errs.Err()
	}
	errs.Add(n.check(n.Position, parts))
	errs.Add(n.checkLifecycle(n.Position))
	errs.Add(n.checkLogLevel(n.Position))
	if err := n.Workers.check(n.In("workers")); err != nil {
		errs.Add(err)
		n.Workers = nil // what looks at the rest would say the same in words of its own
	}
	errs.Add(n.Web.check(n.In("web")))
	errs.Add(n.Cluster.check(n.In(ClusterTable)))
	var wrong []string
	for _, p := range parts {
		if t, ok := n.Tables[p.Name]; ok {
			if err := t.Check(n.In(p.Name)); err != nil {
				errs.Add(err)
				wrong = append(wrong, p.Name)
			}
		}
	}
	errs.Add(n.checkNames(n.Position))
	for _, name := range wrong {
		if _, ok := n.Tables[name].(Salvager); !ok {
			delete(n.Tables, name)
		}
	}
	return n, errs.Err()
}

// describe rewrites an error of decoding a document: file, line and column in front, and words for people who do not know Go.
// keys is the struct that the document was decoded into. unknown tells whether only keys were not known.
func (s *source) describe(number int, keys any, err error) (_ error, unknown bool) {
	at := func(row, col int, text string) error {
		return s.locate(place{document: number, line: row, column: col}, errors.New(text))
	}
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) && len(strict.Errors) > 0 {
		var errs Errors
		for _, e := range strict.Errors {
			row, col := e.Position()
			errs.Add(at(row, col, fmt.Sprintf("unknown key %q%s: see 'culvert run --help' for the keys there are",
				strings.Join(e.Key(), "."), tomltext.DidYouMean(keys, e.Key()))))
		}
		return errs.Err(), true
	}
	var decode *toml.DecodeError
	if errors.As(err, &decode) {
		row, col := decode.Position()
		if unquoted := tomltext.Unquoted(s.documents[number].text, row, col); unquoted != "" {
			return at(row, col, unquoted), false
		}
		key := strings.Join(decode.Key(), ".")
		if key != "" {
			key += ": "
		}
		return at(row, col, key+tomltext.Plain(decode)), false
	}
	return at(0, 0, err.Error()), false
}

func strictDecoder(b []byte) *toml.Decoder {
	return toml.NewDecoder(bytes.NewReader(b)).DisallowUnknownFields()
}

func (n *Node) check(at Position, parts []Part) error {
	var errs Errors
	if n.Mode != ModeNative && n.Mode != ModeGeneric {
		errs.Add(at.Locate("mode", fmt.Errorf("mode = %q: use %q or %q", n.Mode, ModeNative, ModeGeneric)))
	}
	errs.Add(n.checkInterfaces(at))
	if len(n.Tables) > 0 {
		return errs.Err()
	}
	var names []string
	for _, p := range parts {
		names = append(names, "["+p.Name+"]")
	}
	last := len(names) - 1
	errs.Add(at.Locate("", fmt.Errorf("no stage is on: add the table %s or %s", strings.Join(names[:last], ", "), names[last])))
	return errs.Err()
}

// checkNames checks name, interfaces and metrics. With a Namer the stage's own file has name and metrics.
func (n *Node) checkNames(at Position) error {
	var errs Errors
	if table, namer := n.namer(); namer != nil {
		for key, value := range map[string]string{"name": n.Name, "metrics": n.Metrics} {
			if value != "" {
				errs.Add(at.Locate(key, fmt.Errorf("%s = %q beside [%s]: leave it out, the router's own file has it (%s)", key, value, table, namer.NamedIn())))
			}
		}
		return errs.Err()
	}
	if n.Name == "" {
		n.Name = DefaultName
	}
	if strings.ContainsFunc(n.Name, func(r rune) bool { return r == '/' || r == ' ' || !unicode.IsPrint(r) }) {
		errs.Add(at.Locate("name", fmt.Errorf("name = %q: leave out slashes, blanks and what cannot be printed", n.Name)))
	}
	if len(n.Interfaces) == 0 {
		errs.Add(at.Locate("", errors.New("interfaces is missing: name the interfaces to attach to")))
	}
	if n.Metrics != "" {
		if _, _, err := net.SplitHostPort(n.Metrics); err != nil {
			errs.Add(at.Locate("metrics", fmt.Errorf("metrics = %q: use address:port", n.Metrics)))
		}
	}
	errs.Add(n.checkWebMetrics())
	return errs.Err()
}
