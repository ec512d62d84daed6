// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// TestNFTHooks makes one chain at a time, and checks whether it is found.
func TestNFTHooks(t *testing.T) {
	const rule = "counter"
	for _, tt := range []struct {
		family, kind, hook string
		found              bool
	}{
		{"ip", "filter", "hook prerouting priority raw", true},
		{"ip", "filter", "hook input priority 0", false},
		{"ip", "filter", "hook forward priority 0", true},
		{"ip", "filter", "hook output priority 0", false},
		{"ip", "filter", "hook postrouting priority 0", true},
		{"ip", "nat", "hook prerouting priority dstnat", true},
		{"ip", "nat", "hook postrouting priority srcnat", true},
		{"ip", "nat", "hook input priority 0", false},
		{"ip", "route", "hook output priority 0", false},
		{"ip6", "filter", "hook prerouting priority 0", true},
		{"ip6", "filter", "hook input priority 0", false},
		{"ip6", "filter", "hook forward priority 0", true},
		{"ip6", "filter", "hook postrouting priority 0", true},
		{"inet", "filter", "hook prerouting priority 0", true},
		{"inet", "filter", "hook input priority 0", false},
		{"inet", "filter", "hook forward priority 0", true},
		{"inet", "filter", "hook output priority 0", false},
		{"inet", "filter", "hook postrouting priority 0", true},
		{"inet", "filter", "hook ingress device va priority 0", true},
		{"netdev", "filter", "hook ingress device va priority 0", true},
		{"netdev", "filter", "hook egress device va priority 0", true},
		{"netdev", "filter", "hook ingress devices = { va, vb } priority 0", true},
		{"bridge", "filter", "hook forward priority 0", false},
		{"arp", "filter", "hook input priority 0", false},
	} {
		t.Run(tt.family+" "+tt.kind+" "+tt.hook, func(t *testing.T) {
			inNamespace(t)
			sh(t, "ip link add va type veth peer name vb")
			hook := strings.Fields(tt.hook)[1]
			var devices []string
			for _, d := range []string{"va", "vb"} {
				if strings.Contains(tt.hook, d) {
					devices = append(devices, d)
				}
			}
			chain := func(policy string) string {
				return fmt.Sprintf("nft 'add table %s t; add chain %s t c { type %s %s; policy %s; }'\n",
					tt.family, tt.family, tt.kind, tt.hook, policy)
			}
			finding := func(policy string, rules int) []Finding {
				if !tt.found {
					return nil
				}
				return []Finding{nftChain(tt.family, "t", "c", hook, policy, rules, devices...)}
			}
			sh(t, chain("accept"))
			expect(t, find(t))
			sh(t, fmt.Sprintf("nft add rule %s t c %s", tt.family, rule))
			expect(t, find(t), finding("accept", 1)...)
			sh(t, fmt.Sprintf("nft 'add rule %s t c %s; add rule %s t c accept'", tt.family, rule, tt.family))
			expect(t, find(t), finding("accept", 3)...)
			if tt.kind != "nat" { // nat chains accept no other policy
				sh(t, "nft flush chain "+tt.family+" t c\n"+chain("drop"))
				expect(t, find(t), finding("drop", 0)...)
			}
			sh(t, "nft delete table "+tt.family+" t")
			expect(t, find(t))
		})
	}
}

// TestNFTOther checks rulesets with chains without a hook, with sets, and with dormant tables.
func TestNFTOther(t *testing.T) {
	const forward = "type filter hook forward priority 0; counter;"
	for _, tt := range []struct {
		name, ruleset string
		want          []Finding
	}{
		{"chain without a hook", "table ip t { chain c { counter; }; }", nil},
		{"called chains are not counted", "table ip t { chain a { counter; drop; }; chain c { type filter hook forward priority 0; jump a; }; }",
			[]Finding{nftChain("ip", "t", "c", "forward", "accept", 1)}},
		{"called from elsewhere", "table ip t { chain a { counter; }; chain c { type filter hook input priority 0; jump a; }; }", nil},
		{"sets", "table ip t { set s { type ipv4_addr; elements = { 192.0.2.1 }; }; }", nil},
		{"dormant", "table ip t { flags dormant; chain c { " + forward + " }; }", nil},
		{"dormant beside awake", "table ip t { flags dormant; chain c { " + forward + " }; }; table ip6 t { chain c { " + forward + " }; }",
			[]Finding{nftChain("ip6", "t", "c", "forward", "accept", 1)}},
		{"one name in two families", "table ip t { chain c { " + forward + " }; }; table inet t { chain c { type filter hook forward priority 0; }; }",
			[]Finding{nftChain("ip", "t", "c", "forward", "accept", 1)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inNamespace(t)
			sh(t, "nft '"+tt.ruleset+"'")
			expect(t, find(t), tt.want...)
		})
	}
}

// TestFlowtable reads a message in the kernel's format, since not every kernel that tests run on has
// flowtables.
func TestFlowtable(t *testing.T) {
	attribute := func(kind int, value []byte) []byte { return nl.NewRtAttr(kind, value).Serialize() }
	device := func(name string) []byte { return attribute(nftaDeviceName, nl.ZeroTerminated(name)) }
	hook := slices.Concat(
		attribute(1, nl.BEUint32Attr(0)), attribute(2, nl.BEUint32Attr(0)),
		attribute(nftaFlowtableHookDevs|unix.NLA_F_NESTED,
			slices.Concat(device("vb"), device("va"), attribute(nftaDevicePrefix, nl.ZeroTerminated("eth")))))
	message := parse(slices.Concat(
		attribute(nftaFlowtableTable, nl.ZeroTerminated("t")), attribute(nftaFlowtableName, nl.ZeroTerminated("f")),
		attribute(nftaFlowtableUse, nl.BEUint32Attr(2)), attribute(nftaFlowtableHook|unix.NLA_F_NESTED, hook)))
	f, ok := flowtable(unix.NFPROTO_INET, message)
	if !ok {
		t.Error("not recognized as a flowtable")
	}
	expect(t, []Finding{f}, Finding{Backend: NFT, Family: "inet", Table: "t", Chain: "f", Flowtable: true, Hook: "ingress",
		Devices: []string{"eth*", "va", "vb"}, Rules: 2})
	if got, want := f.Show(), "nft list table inet t"; got != want {
		t.Errorf("shown by %q, want %q", got, want)
	}
	if _, ok := flowtable(unix.NFPROTO_BRIDGE, message); ok {
		t.Error("one of a bridge is found")
	}
}

// TestIPTablesNFT checks rules that iptables-nft and ip6tables-nft have made.
func TestIPTablesNFT(t *testing.T) {
	inNamespace(t)
	sh(t, `iptables-nft -P FORWARD DROP
		iptables-nft -t nat -A POSTROUTING -s 192.0.2.0/24 -j MASQUERADE
		iptables-nft -A INPUT -j DROP
		ip6tables-nft -A FORWARD -m comment --comment why -j ACCEPT`)
	expect(t, find(t),
		nftChain("ip", "filter", "FORWARD", "forward", "drop", 0),
		nftChain("ip", "nat", "POSTROUTING", "postrouting", "accept", 1),
		nftChain("ip6", "filter", "FORWARD", "forward", "accept", 1))
}

// TestManyNFT has more chains, and more rules in one chain, than one message of a dump holds.
func TestManyNFT(t *testing.T) {
	inNamespace(t)
	const chains, rules = 300, 3000
	var b strings.Builder
	var want []Finding
	for i := range chains {
		fmt.Fprintf(&b, "add table ip t%d\nadd chain ip t%d c { type filter hook forward priority 0; }\nadd rule ip t%d c counter\n", i, i, i)
		want = append(want, nftChain("ip", fmt.Sprint("t", i), "c", "forward", "accept", 1))
	}
	for i := range rules {
		fmt.Fprintf(&b, "add rule ip t7 c ip daddr 10.0.%d.%d drop\n", i/256, i%256)
	}
	want[7].Rules += rules
	sh(t, "nft -f "+file(t, b.String()))
	expect(t, find(t), want...)
}

func TestGeneration(t *testing.T) {
	inNamespace(t)
	before := generation(t)
	if again := generation(t); again != before {
		t.Errorf("generation %d, then %d without a change", before, again)
	}
	find(t)
	sh(t, "nft list ruleset")
	if after := generation(t); after != before {
		t.Errorf("generation %d, then %d after looking only", before, after)
	}
	for _, change := range []string{
		"add table ip t", "add chain ip t c { type filter hook forward priority 0; }", "add rule ip t c drop",
		"add chain ip t c { policy drop; }", "add table ip t { flags dormant; }", "flush chain ip t c", "delete table ip t",
	} {
		sh(t, "nft '"+change+"'")
		after := generation(t)
		if after == before {
			t.Errorf("generation still %d after %s", after, change)
		}
		before = after
	}
}

// TestSettledNFT changes rules after they were read.
func TestSettledNFT(t *testing.T) {
	inNamespace(t)
	sh(t, "nft 'table ip t { chain c { type filter hook forward priority 0; counter; }; }'")
	reads := 0
	changing := func(times int) func() ([]Finding, error) {
		reads = 0
		return func() ([]Finding, error) {
			found, err := readNFT()
			if reads++; reads <= times {
				sh(t, "nft add rule ip t c counter")
			}
			return found, err
		}
	}
	found, err := settledNFT(changing(2))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, found, nftChain("ip", "t", "c", "forward", "accept", 3))
	if reads != 3 {
		t.Errorf("read %d times, want 3", reads)
	}
	if found, err := settledNFT(changing(1000)); err == nil || !strings.Contains(err.Error(), "try again") {
		t.Errorf("rules that never rest: %+v, %v", found, err)
	}
}

// TestChanging reads a ruleset that is replaced over and over. Find must never return half a ruleset.
func TestChanging(t *testing.T) {
	inNamespace(t)
	ruleset := "flush ruleset\ntable ip t { chain c { type filter hook forward priority 0;\n" +
		strings.Repeat("counter\n", 500) + "}\n}\n"
	replace := "nft -f " + file(t, ruleset) + "\n"
	sh(t, replace)
	stop := start(t, "while :; do\n"+replace+"done")
	for range 100 {
		found, err := Find()
		if err != nil {
			if !strings.Contains(err.Error(), "changed during") {
				t.Fatal(err)
			}
			continue // the machine is too slow to read between two changes, and the error says so
		}
		expect(t, found, nftChain("ip", "t", "c", "forward", "accept", 500))
	}
	stop()
	expect(t, find(t), nftChain("ip", "t", "c", "forward", "accept", 500))
}

// TestNoNFT sends a request to a subsystem that no kernel has. A kernel without nf_tables answers the same.
func TestNoNFT(t *testing.T) {
	inNamespace(t)
	const unknown = 200 - unix.NFNL_SUBSYS_NFTABLES
	err := ask(unknown<<8, unix.NFPROTO_UNSPEC, nil, func(uint8, attributes) { t.Error("an answer") })
	if !missing(err) {
		t.Errorf("got %v, want what is taken for no nf_tables", err)
	}
	if missing(unix.EPERM) || missing(nil) {
		t.Error("a missing privilege, or no error, is taken for no nf_tables")
	}
}
