// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"culvert/internal/host/nexthop"
)

// trackedDevices is a tracker that reports device 11 for every route.
type trackedDevices struct{ to []netip.Addr }

func (d *trackedDevices) TrackDevices(addr, _ netip.Addr, _ int, report func([]int)) *nexthop.Target {
	d.to = append(d.to, addr)
	report([]int{11})
	return nil
}

// TestGateFollowsAllServices checks that the gate follows the routes to all services that the fast path keeps limits for,
// those of hidden segments included. An interface that leads to a service leads inside.
func TestGateFollowsAllServices(t *testing.T) {
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "topology.json"), []byte(`{"isd_as": "1-ff00:0:110", "mtu": 1472,
		"control_service": {"cs1": {"addr": "10.0.0.10:30252"}},
		"discovery_service": {"ds1": {"addr": "10.0.0.10:30252"}},
		"hidden_segment_lookup_service": {"hs1": {"addr": "10.0.0.11:30252"}},
		"hidden_segment_registration_service": {"hs2": {"addr": "10.0.0.12:30252"}},
		"border_routers": {"br1": {"internal_addr": "127.0.0.1:30042", "interfaces": {"1": {
			"underlay": {"local": "192.0.2.1:50000", "remote": "192.0.2.2:50000"},
			"isd_as": "1-ff00:0:111", "link_to": "child", "mtu": 1472}}}}}`), 0o600))
	path := filepath.Join(dir, "br.toml")
	check(t, os.WriteFile(path, []byte("[general]\nid = \"br1\"\nconfig_dir = \""+dir+"\"\n"), 0o600))
	r, err := LoadTopologyOnly(path)
	check(t, err)
	quiet := func(string, ...any) {}
	g, devices := newGate(r, false, quiet, quiet), &trackedDevices{}
	check(t, g.start(t.Context(), devices, nil))
	for _, a := range []string{"10.0.0.10", "10.0.0.11", "10.0.0.12"} {
		if !slices.Contains(devices.to, netip.MustParseAddr(a)) {
			t.Errorf("routes to %v are followed, want that to %s as well", devices.to, a)
		}
	}
	if _, both := g.computeRules(); len(devices.to) != 4 || !reflect.DeepEqual(both, []int{11}) {
		t.Errorf("routes to %v are followed, %v lead both ways", devices.to, both)
	}
}
