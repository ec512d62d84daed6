// SPDX-License-Identifier: Apache-2.0

package routestage

import (
	"fmt"

	"culvert/internal/config"
	"culvert/internal/route/lpm"
	"culvert/internal/route/routeplane"
)

// Table is the table [route] of the configuration file.
type Table struct {
	// BypassNetfilter starts the router though netfilter has rules that forwarded packets will not pass.
	BypassNetfilter bool `toml:"bypass_netfilter"`
	// Mirror keeps a copy of the routing tables for the fast path; true unless configured.
	Mirror *bool `toml:"mirror"`
	// Blocks4 and Blocks6 are the sizes of the copies in blocks of 1 KiB, without the first level; nil means the
	// data plane's default.
	Blocks4 *int `toml:"blocks4"`
	Blocks6 *int `toml:"blocks6"`

	config.Position
}

// MirrorOn reports whether there is a mirror.
func (r *Table) MirrorOn() bool { return r.Mirror == nil || *r.Mirror }

func (r *Table) blocks4() int { return orDefault(r.Blocks4, routeplane.DefaultBlocks4) }

func (r *Table) blocks6() int { return orDefault(r.Blocks6, routeplane.DefaultBlocks6) }

func orDefault(n *int, otherwise int) int {
	if n == nil {
		return otherwise
	}
	return *n
}

// Check implements config.Table: it returns an error for sizes that the data plane would refuse.
func (r *Table) Check(in config.Position) error {
	r.Position = in
	var errs config.Errors
	for key, n := range map[string]*int{"blocks4": r.Blocks4, "blocks6": r.Blocks6} {
		name := in.In(key).Key()
		switch {
		case n == nil:
		case !r.MirrorOn():
			errs.Add(in.Locate(key, fmt.Errorf("%s without a mirror: leave it out, or mirror = false", name)))
		case *n < 1 || *n > lpm.MaxBlocks:
			errs.Add(in.Locate(key, fmt.Errorf("%s = %d: use 1 to %d", name, *n, lpm.MaxBlocks)))
		}
	}
	return errs.Err()
}
