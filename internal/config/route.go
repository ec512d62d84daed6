// SPDX-License-Identifier: Apache-2.0

package config

import "fmt"

// maxBlocks bounds the mirror, as internal/datapath has it.
const maxBlocks = 1 << 23

// Route configures the IP router.
type Route struct {
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
func (r *Route) MirrorOn() bool { return r.Mirror == nil || *r.Mirror }

// check refuses what the data plane would not start. The error comes with the key it is about.
func (r *Route) check() (key string, err error) {
	if r == nil {
		return "", nil
	}
	for key, n := range map[string]*int{"route.blocks4": r.Blocks4, "route.blocks6": r.Blocks6} {
		switch {
		case n == nil:
		case !r.MirrorOn():
			return key, fmt.Errorf("%s without a mirror: leave it out, or mirror = false", key)
		case *n < 1 || *n > maxBlocks:
			return key, fmt.Errorf("%s = %d: use 1 to %d", key, *n, maxBlocks)
		}
	}
	return "", nil
}
