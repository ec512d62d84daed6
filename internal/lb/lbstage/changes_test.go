// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"culvert/internal/stage"
)

// TestChanges compares files. The lines say what differs, and never a password, a seed or what a check sends.
func TestChanges(t *testing.T) {
	const (
		check = "[lb.vip.check]\ntype = \"tcp\"\n"
		seed  = "seed = \"one\"\n"
		other = "[[lb.vip]]\naddress = \"[2001:db8::1]:53\"\nprotocol = \"udp\"\n"
	)
	for _, tt := range []struct {
		was, is string
		want    []string
	}{
		{lbHead + seed + lbVIP + lbBackend + lbBGP + neighbor, lbHead + seed + lbVIP + lbBackend + lbBGP + neighbor, nil},
		{lbHead + seed, lbHead + seed + "flows = 9000\ntcp_timeout = \"10m\"\nunclaimed = \"drop\"\nsource4 = \"10.200.0.0/16\"\n", []string{
			"lb.flows: 1048576 → 9000", "lb.tcp_timeout: 15m0s → 10m0s", "lb.unclaimed: reject → drop", "lb.source4: none → 10.200.0.0/16",
		}},
		{lbHead + seed, lbHead + strings.Replace(seed, "one", "two", 1), []string{"lb.seed changed: flows that are not in the flow table meet other backends"}},
		{lbHead + seed + lbVIP + lbBackend + other, lbHead + seed + lbVIP + "hash = \"source\"\nvlans = [7]\n" + check +
			strings.Replace(lbBackend, ".11", ".12", 1), []string{
			"VIP 192.0.2.1:80/tcp: hash flow → source", "VIP 192.0.2.1:80/tcp: vlans none → [7]", "VIP 192.0.2.1:80/tcp: check tcp added",
			"VIP 192.0.2.1:80/tcp: backend 10.0.0.12 added", "VIP 192.0.2.1:80/tcp: backend 10.0.0.11 removed", "VIP [2001:db8::1]:53/udp removed",
		}},
		{lbHead + seed + lbVIP + check + lbBackend, lbHead + seed + lbVIP + check + "interval = \"2s\"\nsend = \"secret\"\n" + lbBackend +
			"weight = 3\nencapsulation = \"gue\"\n" + other, []string{
			"VIP 192.0.2.1:80/tcp: check interval 1s → 2s", "VIP 192.0.2.1:80/tcp: check send changed",
			"VIP 192.0.2.1:80/tcp: backend 10.0.0.11: weight 1 → 3", "VIP 192.0.2.1:80/tcp: backend 10.0.0.11: encapsulation ipip → gue",
			"VIP 192.0.2.1:80/tcp: backend 10.0.0.11: gue_port 0 → 6080", "VIP [2001:db8::1]:53/udp added",
		}},
		{lbHead + seed + lbBGP + neighbor, lbHead + seed + lbBGP + "hold_time = \"90s\"\ncommunities = [\"65001:7\"]\nmed = 5\n" + neighbor +
			"password = \"secret\"\nnext_hop4 = \"10.0.0.7\"\n" + strings.Replace(neighbor, "0.9", "0.8", 1), []string{
			"lb.bgp.hold_time: 9s → 1m30s (all sessions begin again)", "lb.bgp.communities: none → [65001:7]", "lb.bgp.med: 0 → 5",
			"BGP neighbor 10.0.0.9: password changed (its session begins again)", "BGP neighbor 10.0.0.9: next_hop4 none → 10.0.0.7",
			"BGP neighbor 10.0.0.8 added",
		}},
		{lbHead + seed + lbVIP + lbBGP + neighbor, noLB, []string{"VIP 192.0.2.1:80/tcp removed", "BGP neighbor 10.0.0.9 removed"}},
		{noLB, lbHead + seed + lbVIP + lbBGP + neighbor, []string{"VIP 192.0.2.1:80/tcp added", "BGP neighbor 10.0.0.9 added"}},
	} {
		was, err := compile(t, tt.was)
		if err != nil {
			t.Fatal(err)
		}
		is, err := compile(t, tt.is)
		if err != nil {
			t.Fatal(err)
		}
		if got := is.Changes(was, nil); !slices.Equal(got, tt.want) {
			t.Errorf("%q after %q:\n%s\nwant:\n%s", tt.is, tt.was, strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
		}
	}
	is, err := compile(t, lbHead+seed+lbVIP)
	if got := is.Changes(nil, nil); err != nil || !slices.Equal(got, []string{"VIP 192.0.2.1:80/tcp added"}) {
		t.Errorf("after nothing: %q, %v", got, err)
	}
}

// TestChangedSeed compares a plan that was started with the seed of this machine.
func TestChangedSeed(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	was, err := compile(t, lbHead)
	if err != nil {
		t.Fatal(err)
	}
	start := stage.Start{Log: slog.New(slog.DiscardHandler)}
	made, err := was.seed(start.Log, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := keepSeed(made, nil, start.Log); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{lbHead: 0, lbHead + "seed = \"" + made + "\"\n": 0, lbHead + "seed = \"other\"\n": 1} {
		is, err := compile(t, text)
		if err != nil {
			t.Fatal(err)
		}
		if got := is.Changes(was, nil); len(got) != want || strings.Contains(strings.Join(got, ""), made) {
			t.Errorf("%q: %q", text, got)
		}
	}
}
