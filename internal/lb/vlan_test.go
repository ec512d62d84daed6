// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"slices"
	"strings"
	"testing"
)

func TestParseVLANs(t *testing.T) {
	for text, want := range map[string][]uint16{"none": nil, "100": {100}, "1, 4094": {1, 4094}} {
		ids, err := ParseVLANs(text)
		if err != nil || !slices.Equal(ids, want) {
			t.Errorf("%q: %v, %v", text, ids, err)
		}
	}
	for text, want := range map[string]string{
		"": "is no list of VLANs", "x": "is no list", "0": "VLAN 0: use 1 to 4094", "4095": "VLAN 4095", "5,5": "there twice", "70000": "is no list",
		"1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17": "17 VLANs: use 16 at most",
	} {
		if _, err := ParseVLANs(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestVLANsWritten writes the VLANs that VIPs name. They are kept by address, and deleted once no VIP of the address names them.
func TestVLANsWritten(t *testing.T) {
	one, two := vip(t, "192.0.2.1:80/tcp"), vip(t, "192.0.2.1:443/tcp")
	one.VLANs, two.VLANs = []uint16{100, 200}, []uint16{200}
	state := func(vips ...VIP) image {
		s := numbered(t, State{}, vips...)
		return s.image(allUp(&s))
	}
	for _, tt := range []struct {
		name     string
		old, now image
		want     string
	}{
		{"both VIPs", image{}, state(one, two), "VLAN 100 of 192.0.2.1, VLAN 200 of 192.0.2.1"},
		{"no change", state(one, two), state(one, two), ""},
		{"one VIP deleted", state(one, two), state(two), "VLAN 100 of 192.0.2.1 gone"},
		{"the other one too", state(two), image{}, "VLAN 200 of 192.0.2.1 gone"},
	} {
		r := newRecorder()
		if err := writeVLANs(r, tt.old.vlans, tt.now.vlans); err != nil {
			t.Fatal(err)
		}
		slices.Sort(r.calls)
		if got := r.written(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
