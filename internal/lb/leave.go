// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"context"
	"net/netip"
	"slices"
)

// leave withdraws what has been drained, deleted or detached since the last look, or what the end of ctx has kept from being
// withdrawn: the process ends, and routers may keep what it does not withdraw. One that has told them nothing yet has seen
// too little for that.
func (r *runner) leave(ctx context.Context) {
	gone := func(p netip.Prefix) bool { return false }
	if len(r.Instance.AttachedNow()) == 0 {
		gone = func(p netip.Prefix) bool { return true }
	} else if s, err := Load(r.plane); err == nil {
		gone = func(p netip.Prefix) bool { return !s.offers(p.Addr()) }
	}
	staying := slices.DeleteFunc(slices.Clone(r.announced), gone)
	if r.spoken && (!r.told || len(staying) < len(r.announced)) {
		r.announced = staying
		r.announce(context.WithoutCancel(ctx))
	}
}

// offers tells whether a VIP of an address is not drained, nor all of its backends.
func (s *State) offers(addr netip.Addr) bool {
	return slices.ContainsFunc(s.VIPs, func(v VIP) bool {
		return v.Service.Addr == addr && !v.Drained && slices.ContainsFunc(v.Backends, func(b Backend) bool { return b.Share() > 0 })
	})
}
