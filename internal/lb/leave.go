// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"context"
	"net/netip"
	"slices"
)

// leave withdraws, at the end of the process, the addresses that have been drained, deleted or detached since the last
// announcement, and those that ctx has ended too early for. Routers may keep what the process does not withdraw. A process
// that has announced nothing yet knows too little and withdraws nothing.
func (r *runner) leave(ctx context.Context) {
	gone := func(p netip.Prefix) bool { return false }
	if len(r.Instance.AttachedNow()) == 0 {
		gone = func(p netip.Prefix) bool { return true }
	} else if s, err := Load(r.plane); err == nil {
		gone = func(p netip.Prefix) bool { return !s.offers(p.Addr()) }
	}
	left := slices.DeleteFunc(slices.Clone(r.announced), gone)
	if r.spoken && (!r.upToDate || len(left) < len(r.announced)) {
		r.announced = left
		r.announce(context.WithoutCancel(ctx))
	}
}

// offers returns whether the address has a VIP that is not drained and has a backend that is not.
func (s *State) offers(addr netip.Addr) bool {
	return slices.ContainsFunc(s.VIPs, func(v VIP) bool {
		return v.Service.Addr == addr && !v.Drained && slices.ContainsFunc(v.Backends, func(b Backend) bool { return b.Share() > 0 })
	})
}
