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

// What VIPs name is written by address, and goes when no VIP of the address names it any more.
func TestVLANsWritten(t *testing.T) {
	one, two := vip(t, "192.0.2.1:80/tcp"), vip(t, "192.0.2.1:443/tcp")
	one.VLANs, two.VLANs = []uint16{100, 200}, []uint16{200}
	both := numbered(t, State{}, one, two)
	alone := numbered(t, State{}, two)
	r := newRecorder()
	changes := func(old, now image) string {
		if err := writeVLANs(r, old.vlans, now.vlans); err != nil {
			t.Fatal(err)
		}
		slices.Sort(r.done)
		return r.took()
	}
	all, rest := both.image(allUp(&both)), alone.image(allUp(&alone))
	if got := changes(image{}, all); got != "VLAN 100 of 192.0.2.1, VLAN 200 of 192.0.2.1" {
		t.Error(got)
	}
	if got := changes(all, all); got != "" {
		t.Error(got)
	}
	if got := changes(all, rest); got != "VLAN 100 of 192.0.2.1 gone" {
		t.Error(got)
	}
	if got := changes(rest, image{}); got != "VLAN 200 of 192.0.2.1 gone" {
		t.Error(got)
	}
}
