// SPDX-License-Identifier: Apache-2.0

package filterrun

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"culvert/internal/bench/load"
	"culvert/internal/bench/scenario"
	"culvert/internal/filter/cbpf"
	"culvert/internal/filter/pcap"
)

func TestRulesOfPeers(t *testing.T) {
	set := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.7/32")}
	for name, tc := range map[string]struct{ got, want string }{
		"iptables": {
			ruleSet{Idle: 2}.iptables("raw", "PREROUTING", []string{"-j NOTHING"}, "-p icmp"),
			"*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j NOTHING\n" +
				"-A PREROUTING -s 203.0.113.1/32 -p udp --dport 20000 -j DROP\n" +
				"-A PREROUTING -s 203.0.113.2/32 -p udp --dport 20001 -j DROP\n-A PREROUTING -p icmp -j DROP\nCOMMIT\n",
		},
		"ipset": {
			ruleSet{Set: set}.ipset(),
			"create bad hash:net family inet hashsize 1024 maxelem 2\nadd bad 192.0.2.0/24\nadd bad 198.51.100.7/32\n",
		},
		"nft": {
			ruleSet{Idle: 1}.nft("eth0"),
			"table netdev cvfilter {\n\tcounter dropped { }\n\tchain drops {\n" +
				"\t\ttype filter hook ingress device \"eth0\" priority 0\n\t\tip saddr 203.0.113.1 udp dport 20000 drop\n" +
				"\t\tip protocol icmp counter name dropped drop\n\t}\n}\n",
		},
		"nft set": {
			ruleSet{Set: set}.nft("eth0"),
			"table netdev cvfilter {\n\tcounter dropped { }\n\tset bad {\n\t\ttype ipv4_addr\n\t\tflags interval\n" +
				"\t\telements = {192.0.2.0/24,198.51.100.7/32}\n\t}\n\tchain drops {\n" +
				"\t\ttype filter hook ingress device \"eth0\" priority 0\n\t\tip saddr @bad counter name dropped drop\n\t}\n}\n",
		},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, tc.got, tc.want)
		}
	}
}

// culvert's programs are those that libpcap compiles from expressions with the meaning of the peers' rules.
func TestProgramsAreLibpcaps(t *testing.T) {
	for expression, text := range map[string]string{
		"icmp": icmpProgram,
		fmt.Sprintf("ip and src host %s and udp dst port %d", idleSource(0), idlePort(0)):     idleProgram(0),
		fmt.Sprintf("ip and src host %s and udp dst port %d", idleSource(300), idlePort(300)): idleProgram(300),
	} {
		want, err := pcap.Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		got, err := cbpf.Parse([]byte(text))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: error %v, program\n%v\nwant\n%v", expression, err, got, want)
		}
	}
}

func TestRandomPrefixes(t *testing.T) {
	for _, n := range []int{0, 1, 10, 10_000} {
		all := randomPrefixes(n)
		if len(all) != n || !slices.Equal(all, randomPrefixes(n)) {
			t.Fatalf("%d prefixes, want %d, the same each time", len(all), n)
		}
		slices.SortFunc(all, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
		lengths := map[int]int{}
		for i, p := range all {
			lengths[p.Bits()]++
			if p != p.Masked() || p.Contains(floodSource) || i > 0 && all[i-1].Overlaps(p) {
				t.Errorf("%s after %s", p, all[max(i-1, 0)])
			}
		}
		if n == 10_000 && (len(lengths) != len(prefixLengths) || lengths[24] != 6200) {
			t.Errorf("lengths %v", lengths)
		}
	}
}

func TestFilterGroups(t *testing.T) {
	for asked, want := range map[string]string{
		"drop":              "drop",
		"load,tcp":          "load-25 load-50 load-100 tcp",
		"rules-10":          "rules-10-drop rules-10-pass",
		"set-10-warm,rules": "rules-1-drop rules-1-pass rules-10-drop rules-10-pass rules-100-drop rules-100-pass rules-1000-drop rules-1000-pass set-10-warm",
	} {
		batches, err := chosenGroups(scenario.Options{Groups: strings.Split(asked, ",")})
		var names []string
		for _, batch := range batches {
			for _, g := range batch {
				names = append(names, g.name)
			}
		}
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("%s: groups %s, error %v, want %s", asked, got, err, want)
		}
	}
	if _, err := chosenGroups(scenario.Options{Groups: []string{"rule"}}); !errors.Is(err, load.ErrUnknown) {
		t.Errorf("error %v", err)
	}
}
