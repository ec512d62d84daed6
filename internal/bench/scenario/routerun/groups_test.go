// SPDX-License-Identifier: Apache-2.0

package routerun

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario"
)

func TestRouteGroups(t *testing.T) {
	want := []string{
		"4-few", "4-full-1", "4-full-64", "4-full-4096", "4-full-65536", "4-full-zipf", "4-full-churn", "4-single", "4-multi",
		"6-few", "6-full-1", "6-full-64", "6-full-4096", "6-full-65536", "6-full-zipf", "6-full-churn", "6-single", "6-multi",
	}
	if got := Groups(); !slices.Equal(got, want) {
		t.Errorf("groups %q, want %q", got, want)
	}
	for _, tc := range []struct{ words, want []string }{
		{nil, want},
		{[]string{"6-few", "4-few"}, []string{"4-few", "6-few"}},
		{[]string{"6"}, []string{"6-few", "6-full-1", "6-full-64", "6-full-4096", "6-full-65536", "6-full-zipf", "6-full-churn", "6-single", "6-multi"}},
		{[]string{"4-full", "4-full-1"}, []string{"4-full-1", "4-full-64", "4-full-4096", "4-full-65536", "4-full-zipf", "4-full-churn"}},
	} {
		groups, err := chosenGroups(scenario.Options{Groups: tc.words})
		var got []string
		for _, g := range groups {
			got = append(got, g.String())
		}
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("groups %q of %q, want %q; error %v", got, tc.words, tc.want, err)
		}
	}
	for _, bad := range []string{"", "5", "4-fu", "4-full-2"} {
		if _, err := chosenGroups(scenario.Options{Groups: []string{bad}}); !errors.Is(err, load.ErrUnknown) {
			t.Errorf("group %q: error %v", bad, err)
		}
	}
}

// Frames go from the tester to the router. There is one for each destination, and several for some in a Zipf distribution.
func TestRoutedFrames(t *testing.T) {
	source, in := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	p := peer.Path{Source: load.End{MAC: source}, In: load.End{MAC: in}}
	for _, g := range []*group{
		{addresses: 1}, {addresses: 200}, {v6: true, addresses: 200}, {addresses: 50, zipf: true},
	} {
		frames, err := g.frames(fewRoutes(), p)
		if err != nil {
			t.Fatal(err)
		}
		want := g.addresses
		if g.zipf {
			want = mixLen
		}
		seen := map[netip.Addr]int{}
		for _, f := range frames {
			dst, ttl, kind := netip.AddrFrom4([4]byte(f[30:34])), f[22], uint16(0x0800)
			if g.v6 {
				dst, ttl, kind = netip.AddrFrom16([16]byte(f[38:54])), f[21], 0x86dd
			} else if load.OnesSum(f[14:34]) != 0xffff {
				t.Fatalf("wrong checksum in % x", f)
			}
			if len(f) != frameLen || ttl != 64 || binary.BigEndian.Uint16(f[12:]) != kind ||
				!slices.Equal(f[0:6], in) || !slices.Equal(f[6:12], source) {
				t.Fatalf("frame % x", f)
			}
			seen[dst]++
		}
		if len(frames) != want || len(seen) != g.addresses || len(g.from) != g.addresses {
			t.Errorf("%s of %d: %d frames to %d destinations in %d routes", g, g.addresses, len(frames), len(seen), len(g.from))
		}
	}
}
