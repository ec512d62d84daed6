// SPDX-License-Identifier: Apache-2.0

// Package config reads culvert's own configuration: one TOML file for a node.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
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

// Node configures everything culvert does on a host.
type Node struct {
	// Mode is ModeNative, the default, or ModeGeneric.
	Mode string `toml:"mode"`
	// Interfaces to attach to. Without them, those that carry the addresses of the stages below.
	Interfaces []string `toml:"interfaces"`
	// Missing says what becomes of the start without some of the interfaces, Detached what the process does when the
	// data plane is taken away from it.
	Missing  string `toml:"missing"`
	Detached string `toml:"detached"`
	// Workers are nil if packets stay on the CPU that they come in on.
	Workers *Workers `toml:"workers"`
	SCION   *SCION   `toml:"scion"`
	Route   *Route   `toml:"route"`
	// Filter is nil if the file has no filter.
	Filter *Filter `toml:"filter"`
	// Balance is nil if the file has no load balancer.
	Balance *Balance `toml:"balance"`
	// Name tells a data plane without a SCION router from others; with one it has the router's ID.
	Name string `toml:"name"`
	// Metrics is the address that serves them, for a data plane without a SCION router: "127.0.0.1:9441".
	Metrics string `toml:"metrics"`
}

// DefaultName is what a data plane without a SCION router is called.
const DefaultName = "culvert"

// SCION configures the border router.
type SCION struct {
	// Config is the reference router's TOML file; a relative path starts at this file's directory.
	Config string `toml:"config"`
	// DebugHTTP has the router's HTTP addresses serve the profiler, and change the log level.
	DebugHTTP bool `toml:"debug_http"`
	// LinkInterfaces is LinksStrict, the default, or LinksLoose.
	LinkInterfaces string `toml:"link_interfaces"`
	// BFDMinTTL is the TTL or hop limit that BFD packets have to come with; 0, the default, is any.
	BFDMinTTL int `toml:"bfd_min_ttl"`
}

// check says which key is wrong.
func (s *SCION) check() (key string, err error) {
	if s != nil && (s.BFDMinTTL < 0 || s.BFDMinTTL > 255) {
		return "scion.bfd_min_ttl", fmt.Errorf("scion.bfd_min_ttl = %d: use 1 to 255, or 0 for any", s.BFDMinTTL)
	}
	return "", nil
}

// By which interfaces datagrams of links are taken.
const (
	// LinksStrict takes those of an external link by the interface that the route to its far end leads to.
	LinksStrict = "strict"
	// LinksLoose takes all by any interface.
	LinksLoose = "loose"
)

// Loose tells whether datagrams of links are taken by any interface.
func (s *SCION) Loose() bool { return s.LinkInterfaces == LinksLoose }

// IsNode tells whether the TOML file at path looks like one for Load, and not like the reference
// router's: that one has none of culvert's keys. A file that is no TOML is not one for Load.
func IsNode(path string) (bool, error) {
	b, err := read(path)
	if err != nil {
		return false, err
	}
	var tables map[string]any
	if err := toml.Unmarshal(b, &tables); err != nil {
		return false, nil
	}
	for _, key := range []string{"scion", "mode", "interfaces", "missing", "detached", "workers", "route", "filter", "balance"} {
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

// Load reads and checks the file at path. An error is one line with the file and, where there is
// one, line and column.
func Load(path string) (*Node, error) {
	b, err := read(path)
	if err != nil {
		return nil, err
	}
	n := Node{Mode: ModeNative}
	if err := toml.NewDecoder(bytes.NewReader(b)).DisallowUnknownFields().Decode(&n); err != nil {
		var list *listError
		if errors.As(err, &list) {
			return nil, fmt.Errorf("%s%s: %w", path, position(b, "workers.cpus"), list)
		}
		return nil, located(path, err)
	}
	if key, err := n.check(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("%s%s: %w", path, position(b, key), err)
	}
	if key, err := n.checkLife(); err != nil {
		return nil, fmt.Errorf("%s%s: %w", path, position(b, key), err)
	}
	if key, err := n.SCION.check(); err != nil {
		return nil, fmt.Errorf("%s%s: %w", path, position(b, key), err)
	}
	if key, err := n.Workers.check(); err != nil {
		return nil, fmt.Errorf("%s%s: %w", path, position(b, key), err)
	}
	if key, err := n.Route.check(); err != nil {
		return nil, fmt.Errorf("%s%s: %w", path, position(b, key), err)
	}
	if err := n.Filter.check(path, b); err != nil {
		return nil, err
	}
	if err := n.Balance.check(path, b); err != nil {
		return nil, err
	}
	if key, err := n.checkAlone(); err != nil {
		return nil, fmt.Errorf("%s%s: %w", path, position(b, key), err)
	}
	return &n, nil
}

// located puts file, line and column in front of what is wrong.
func located(path string, err error) error {
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) && len(strict.Errors) > 0 {
		e := strict.Errors[0]
		row, col := e.Position()
		return fmt.Errorf("%s:%d:%d: unknown key %q%s: see 'culvert run --help' for the keys there are",
			path, row, col, joinKey(e.Key()), tomltext.DidYouMean(Node{}, e.Key()))
	}
	var decode *toml.DecodeError
	if errors.As(err, &decode) {
		row, col := decode.Position()
		return fmt.Errorf("%s:%d:%d: %s", path, row, col, tomltext.Plain(decode))
	}
	return fmt.Errorf("%s: %w", path, err)
}

func joinKey(key toml.Key) string {
	var s string
	for i, k := range key {
		if i > 0 {
			s += "."
		}
		s += k
	}
	return s
}

// check fills in paths and defaults. The error comes with the key it is about.
func (n *Node) check(dir string) (key string, err error) {
	if n.Mode != ModeNative && n.Mode != ModeGeneric {
		return "mode", fmt.Errorf("mode = %q: use %q or %q", n.Mode, ModeNative, ModeGeneric)
	}
	for i, name := range n.Interfaces {
		if slices.Contains(n.Interfaces[:i], name) {
			return "interfaces", fmt.Errorf("interfaces names %s twice: leave one out", name)
		}
	}
	if n.SCION == nil && n.Route == nil && n.Filter == nil && n.Balance == nil {
		return "", errors.New("no stage is on: add a [scion], a [route], a [filter] or a [balance] table")
	}
	if n.SCION == nil {
		return "", nil
	}
	if n.SCION.Config == "" {
		return "scion", errors.New("scion.config is missing: name the router's TOML file")
	}
	n.SCION.Config = relativeTo(dir, n.SCION.Config)
	switch n.SCION.LinkInterfaces {
	case "":
		n.SCION.LinkInterfaces = LinksStrict
	case LinksStrict, LinksLoose:
	default:
		return "scion.link_interfaces", fmt.Errorf("scion.link_interfaces = %q: use %q or %q", n.SCION.LinkInterfaces, LinksStrict, LinksLoose)
	}
	return "", nil
}

// checkAlone looks at what is said once for the node without a SCION router, whose own file says it
// otherwise. The error comes with the key it is about.
func (n *Node) checkAlone() (key string, err error) {
	if n.SCION != nil {
		for key, value := range map[string]string{"name": n.Name, "metrics": n.Metrics} {
			if value != "" {
				return key, fmt.Errorf("%s = %q beside [scion]: the router's own file says it (%s)", key, value, n.SCION.Config)
			}
		}
		return "", nil
	}
	if n.Name == "" {
		n.Name = DefaultName
	}
	if strings.ContainsFunc(n.Name, func(r rune) bool { return r == '/' || r == ' ' || !unicode.IsPrint(r) }) {
		return "name", fmt.Errorf("name = %q: leave out slashes, blanks and what cannot be printed", n.Name)
	}
	if len(n.Interfaces) == 0 {
		return "", errors.New("interfaces is missing: name those to attach to")
	}
	if slices.Contains(n.Interfaces, "") {
		return "interfaces", errors.New("interfaces has an empty name: leave it out")
	}
	if n.Metrics != "" {
		if _, _, err := net.SplitHostPort(n.Metrics); err != nil {
			return "metrics", fmt.Errorf("metrics = %q: use address:port", n.Metrics)
		}
	}
	return "", nil
}
