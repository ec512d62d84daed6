// SPDX-License-Identifier: Apache-2.0

package routestage

import (
	"fmt"

	"culvert/internal/config"
)

// maxBlocks bounds the mirror, as internal/datapath has it.
const maxBlocks = 1 << 23

// Table is [route].
type Table struct {
	// BypassNetfilter starts the router though netfilter has rules that forwarded packets will not pass.
	BypassNetfilter bool `toml:"bypass_netfilter"`
	// Mirror keeps a copy of the routing tables for the fast path; true unless configured.
	Mirror *bool `toml:"mirror"`
	// Blocks4 and Blocks6 are the sizes of the copies, 1 KiB each block beside the first level; nil leaves
	// them to the data plane.
	Blocks4 *int `toml:"blocks4"`
	Blocks6 *int `toml:"blocks6"`
}

// MirrorOn tells whether there is a mirror.
func (r *Table) MirrorOn() bool { return r.Mirror == nil || *r.Mirror }

// Check implements config.Table: it refuses what the data plane would not start.
func (r *Table) Check(in config.Position) error {
	for key, n := range map[string]*int{"blocks4": r.Blocks4, "blocks6": r.Blocks6} {
		name := in.In(key).Key()
		switch {
		case n == nil:
		case !r.MirrorOn():
			return in.Locate(key, fmt.Errorf("%s without a mirror: leave it out, or mirror = false", name))
		case *n < 1 || *n > maxBlocks:
			return in.Locate(key, fmt.Errorf("%s = %d: use 1 to %d", name, *n, maxBlocks))
		}
	}
	return nil
}
