// SPDX-License-Identifier: Apache-2.0

package routerun

import (
	"net/netip"
	"strings"
	"testing"

	"culvert/internal/bench/load"
	"culvert/internal/bench/scenario"
	"culvert/internal/testbed"

	"github.com/vishvananda/netlink"
)

// countRoutes counts a family's routes with a gateway in the kernel: all, and by gateway.
func countRoutes(t *testing.T, s *load.Netns, family int) (routes int, byGateway map[string]int) {
	t.Helper()
	all, err := s.Netlink().RouteList(nil, family)
	if err != nil {
		t.Fatal(err)
	}
	byGateway = map[string]int{}
	for _, r := range all {
		if r.Gw != nil {
			routes++
			byGateway[r.Gw.String()]++
		}
	}
	return routes, byGateway
}

// All routes of a table are installed in the kernel and spread over the gateways. Deleted routes are gone.
func TestRouteWriter(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	table, err := fullRoutes(scenario.Options{Prefixes: testPrefixes(t), Sample: 5000})
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBed(t.Context(), table)
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	if want := uint64(len(table.v4) + len(table.v6)); b.writer.sent != want {
		t.Errorf("%d routes taken, want %d", b.writer.sent, want)
	}
	for family, want := range map[int]int{netlink.FAMILY_V4: len(table.v4), netlink.FAMILY_V6: len(table.v6)} {
		got, byGateway := countRoutes(t, b.under, family)
		if got != want || len(byGateway) != gatewayCount {
			t.Errorf("family %d: %d routes by %d gateways, want %d by %d", family, got, len(byGateway), want, gatewayCount)
		}
	}
	for _, p := range table.v4[1:] {
		if err := b.writer.change(deleteRoute, p); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.writer.flush(); err != nil {
		t.Fatal(err)
	}
	if got, _ := countRoutes(t, b.under, netlink.FAMILY_V4); got != 1 {
		t.Errorf("%d routes are left, want the default route only", got)
	}
}

// The error names the change that the kernel refused. The other changes of the batch are made.
func TestRefusedRoutes(t *testing.T) {
	testbed.NeedRoot(t)
	b, err := newBed(t.Context(), fewRoutes())
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"198.51.0.0/24", "192.0.2.0/24", "198.51.1.0/24"} {
		if err := b.writer.change(addRoute, netip.MustParsePrefix(text), gateway(false, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.writer.flush(); err == nil || !strings.Contains(err.Error(), "1 of 3") || !strings.Contains(err.Error(), "192.0.2.0/24: file exists") {
		t.Errorf("error %v", err)
	}
	if got, _ := countRoutes(t, b.under, netlink.FAMILY_V4); got != 6 {
		t.Errorf("%d routes, want 6", got)
	}
}
