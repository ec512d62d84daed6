// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"errors"
	"strings"
	"testing"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario"
)

// Each peer's rules have the service and all backends.
func TestRulesOfBalancers(t *testing.T) {
	p := peer.Path{In: load.End{Name: "in"}, Out: load.End{Name: "out", MAC: backendMAC(200)}}
	for name, tc := range map[string]struct {
		text  string
		lines int
		want  []string
	}{
		"nft-jhash": {nftJHash(), 6, []string{
			"ip daddr 192.0.2.1 tcp dport 80 dnat to jhash ip saddr . tcp sport mod 100 map { 0 : 198.19.0.101, 1 : 198.19.0.102,",
			"99 : 198.19.0.200 }\n",
		}},
		"nft-netdev": {nftNetdev(p), 10, []string{
			"elements = { 198.19.0.101 : 02:00:00:00:01:00, ", "198.19.0.200 : 02:00:00:00:01:63 }\n", `device "in"`,
			"ip daddr set jhash ip saddr . tcp sport mod 100 map { 0 : 198.19.0.101,",
			"ether daddr set ip daddr map @macs ether saddr set 02:00:00:00:01:c8 fwd to \"out\"\n",
		}},
		"nft-netdev-l2": {nftLayer2(p), 6, []string{
			"ether daddr set jhash ip saddr . tcp sport mod 100 map { 0 : 02:00:00:00:01:00,", "fwd to \"out\"\n",
		}},
		"iptables-statistic": {iptablesStatistic(), 103, []string{
			"-A PREROUTING -d 192.0.2.1/32 -p tcp --dport 80 -m statistic --mode random --probability 0.01000000 -j DNAT --to-destination 198.19.0.101\n",
			"--probability 0.50000000 -j DNAT --to-destination 198.19.0.199\n",
			"-A PREROUTING -d 192.0.2.1/32 -p tcp --dport 80 -j DNAT --to-destination 198.19.0.200\nCOMMIT\n",
		}},
		"ipvs": {ipvs("mh", "-i"), 101, []string{
			"-A -t 192.0.2.1:80 -s mh -b mh-port\n-a -t 192.0.2.1:80 -r 198.19.0.101:80 -i -w 1\n", "-r 198.19.0.200:80 -i -w 1\n",
		}},
	} {
		if n := strings.Count(tc.text, "\n"); n != tc.lines {
			t.Errorf("%s: %d lines, want %d:\n%s", name, n, tc.lines, tc.text)
		}
		for _, want := range tc.want {
			if !strings.Contains(tc.text, want) {
				t.Errorf("%s: no %q in\n%s", name, want, tc.text)
			}
		}
	}
	if text := haproxyConfig(); strings.Count(text, "  server b") != backendCount || !strings.Contains(text, "\n  bind 192.0.2.1:80\n") {
		t.Errorf("haproxy:\n%s", text)
	}
}

func TestLBGroups(t *testing.T) {
	names := func(groups []*group) string {
		var all []string
		for _, g := range groups {
			all = append(all, g.name)
		}
		return strings.Join(all, " ")
	}
	for cpus, want := range map[int]string{
		1: "known syn million tcp cost", 2: "known syn million cores-1 cores-2 tcp cost", 6: "known syn million cores-1 cores-2 cores-4 cores-6 tcp cost",
	} {
		if got := names(allGroups(cpus, million)); got != want {
			t.Errorf("%d CPUs: groups %s, want %s", cpus, got, want)
		}
	}
	got, err := chosenGroups(scenario.Options{Groups: []string{"tcp", "known"}})
	if err != nil || names(got) != "known tcp" {
		t.Errorf("groups %s, error %v", names(got), err)
	}
	if _, err := chosenGroups(scenario.Options{Groups: []string{"core"}}); !errors.Is(err, load.ErrUnknown) {
		t.Errorf("error %v", err)
	}
}

func TestConntrackDrops(t *testing.T) {
	const text = "entries  clashres found insert_failed drop early_drop\n00000003  00000001 00000000 00000002 0000000a 000000ff\n" +
		"00000003  00000001 00000000 00000001 00000010 000000ff\n"
	if n, err := conntrackDrops(text); n != 2+10+1+16 || err != nil {
		t.Errorf("%d, error %v", n, err)
	}
	if n, err := conntrackDrops("entries drop\n00000001 what\n"); err == nil {
		t.Errorf("%d, no error", n)
	}
}

// Guests get the programs that their rows need, and modules in an order in which they can be loaded.
func TestInsnBalancersHaveProgramsAndModules(t *testing.T) {
	if got := strings.Join(PeerPrograms(nil), " "); got != "ipvsadm nft" {
		t.Errorf("programs of all rows: %s", got)
	}
	if got := PeerPrograms([]string{"path/redirect"}); len(got) > 0 {
		t.Errorf("programs of redirect: %s", got)
	}
	order := strings.Join(Modules(), " ") + " "
	for _, c := range InsnPeers() {
		rest := order
		for _, m := range c.Device(peer.DeviceOptions{}).(*insnPeer).Modules() {
			_, after, found := strings.Cut(rest, m+" ")
			if !found {
				t.Errorf("%s: module %s is not among those before it: %s", c.Name, m, order)
			}
			rest = after
		}
	}
}
