// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"errors"
	"fmt"

	"culvert/internal/config"
)

// Table is [scion].
type Table struct {
	// Config is the reference router's TOML file; a relative path starts at this file's directory.
	Config string `toml:"config"`
	// DebugHTTP has the router's HTTP addresses serve the profiler, and change the log level.
	DebugHTTP bool `toml:"debug_http"`
	// LinkInterfaces is LinksStrict, the default, or LinksLoose.
	LinkInterfaces string `toml:"link_interfaces"`
	// BFDMinTTL is the TTL or hop limit that BFD packets have to come with; 0, the default, is any.
	BFDMinTTL int `toml:"bfd_min_ttl"`
}

// By which interfaces datagrams of links are taken.
const (
	// LinksStrict takes those of an external link by the interface that the route to its far end leads to.
	LinksStrict = "strict"
	// LinksLoose takes all by any interface.
	LinksLoose = "loose"
)

// Loose tells whether datagrams of links are taken by any interface.
func (s *Table) Loose() bool { return s.LinkInterfaces == LinksLoose }

// NamedIn implements config.Namer.
func (s *Table) NamedIn() string { return s.Config }

// Check implements config.Table.
func (s *Table) Check(in config.Position) error {
	if s.Config == "" {
		return in.Locate("", errors.New("scion.config is missing: name the router's TOML file"))
	}
	s.Config = in.Relative(s.Config)
	switch s.LinkInterfaces {
	case "":
		s.LinkInterfaces = LinksStrict
	case LinksStrict, LinksLoose:
	default:
		return in.Locate("link_interfaces", fmt.Errorf("scion.link_interfaces = %q: use %q or %q", s.LinkInterfaces, LinksStrict, LinksLoose))
	}
	if s.BFDMinTTL < 0 || s.BFDMinTTL > 255 {
		return in.Locate("bfd_min_ttl", fmt.Errorf("scion.bfd_min_ttl = %d: use 1 to 255, or 0 for any", s.BFDMinTTL))
	}
	return nil
}
