// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"net/netip"
	"slices"
	"testing"

	"culvert/internal/scion/scionplane"
)

func TestUnderlay(t *testing.T) {
	internal := netip.MustParseAddrPort("192.0.2.1:30042")
	sibling := netip.MustParseAddrPort("192.0.2.2:30042")
	external := netip.MustParseAddrPort("[2001:db8::1]:50000")
	neighbor := netip.MustParseAddrPort("[2001:db8::2]:50000")
	r := Router{Datapath: scionplane.Config{Links: []scionplane.Link{
		{Name: "internal", Local: internal},
		{Name: "sibling", Local: internal, Remote: sibling},
		{Name: "1", Local: external, Remote: neighbor},
	}}}
	local, remote := r.Underlay()
	if want := []netip.Addr{internal.Addr(), external.Addr()}; !slices.Equal(local, want) {
		t.Errorf("local: got %v, want %v", local, want)
	}
	if want := []netip.Addr{sibling.Addr(), neighbor.Addr()}; !slices.Equal(remote, want) {
		t.Errorf("remote: got %v, want %v", remote, want)
	}
}
