// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"culvert/internal/config"
)

// Table is the table [scion] of culvert's configuration.
type Table struct {
	// Config is the path of the reference router's TOML file. A relative path starts at the directory of the file that
	// has the table.
	Config string `toml:"config"`
	// DebugHTTP lets the router's HTTP addresses serve the profiler and change the log level.
	DebugHTTP bool `toml:"debug_http"`
	// LinkInterfaces is LinksStrict, the default, or LinksLoose.
	LinkInterfaces string `toml:"link_interfaces"`
	// BFDMinTTL is the lowest TTL or hop limit that BFD packets are accepted with. 0, the default, accepts any.
	BFDMinTTL int `toml:"bfd_min_ttl"`
	// TooBig is TooBigFragment, the default, or TooBigAnswer.
	TooBig string `toml:"too_big"`
	// Key has the AS's master keys with the times at which they are valid. Without any the router has master0.key of its own
	// configuration directory.
	Key []KeyTable `toml:"key"`
}

// The values of Table.LinkInterfaces.
const (
	// LinksStrict accepts datagrams of an external link only by the interfaces that the routes to its far end lead to,
	// and others not by an interface that leads to another AS alone.
	LinksStrict = "strict"
	// LinksLoose accepts all datagrams by any interface.
	LinksLoose = "loose"
)

// The values of Table.TooBig.
const (
	// TooBigAnswer drops packets that are too big for the way out, and answers them by SCMP.
	TooBigAnswer = "answer"
	// TooBigFragment sends them in IP fragments, as the reference does.
	TooBigFragment = "fragment"
)

// Loose tells whether datagrams of links are accepted by any interface.
func (s *Table) Loose() bool { return s.LinkInterfaces == LinksLoose }

// Fragment tells whether packets that are too big for the way out are sent in IP fragments: by default, also without a table.
func (s *Table) Fragment() bool { return s.TooBig != TooBigAnswer }

// NamedIn implements config.Namer.
func (s *Table) NamedIn() string { return s.Config }

// equal tells whether two tables ask for the same, wherever they are.
func (s *Table) equal(o *Table) bool {
	a, b := *s, *o
	a.Key, b.Key = nil, nil
	return reflect.DeepEqual(a, b) && slices.EqualFunc(s.Key, o.Key, func(k, l KeyTable) bool { return k.File == l.File && k.span == l.span })
}

// Check implements config.Table.
func (s *Table) Check(in config.Position) error {
	var errs config.Errors
	if s.Config == "" {
		errs.Add(in.Locate("", errors.New("scion.config is missing: name the router's TOML file")))
	}
	s.Config = in.Relative("config", s.Config)
	switch s.LinkInterfaces {
	case "":
		s.LinkInterfaces = LinksStrict
	case LinksStrict, LinksLoose:
	default:
		errs.Add(in.Locate("link_interfaces", fmt.Errorf("scion.link_interfaces = %q: use %q or %q", s.LinkInterfaces, LinksStrict, LinksLoose)))
	}
	switch s.TooBig {
	case "":
		s.TooBig = TooBigFragment
	case TooBigAnswer, TooBigFragment:
	default:
		errs.Add(in.Locate("too_big", fmt.Errorf("scion.too_big = %q: use %q or %q", s.TooBig, TooBigFragment, TooBigAnswer)))
	}
	if s.BFDMinTTL < 0 || s.BFDMinTTL > 255 {
		errs.Add(in.Locate("bfd_min_ttl", fmt.Errorf("scion.bfd_min_ttl = %d: use 1 to 255, or 0 for any", s.BFDMinTTL)))
	}
	errs.Add(s.checkKeys(in))
	return errs.Err()
}
