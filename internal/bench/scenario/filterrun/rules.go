// SPDX-License-Identifier: Apache-2.0

package filterrun

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"culvert/internal/bench/load"
)

// ruleSet describes the rules of a filter under test: rules that match no packet, and a last rule that drops.
type ruleSet struct {
	// Idle is the number of rules in front. Each matches a UDP port and a source that no packet has.
	Idle int
	// Set, if not empty, is the set of sources that the last rule drops. Without it the last rule drops ICMP.
	Set []netip.Prefix

	// The following are for culvert alone. Off leaves all rules out. Shape leaves out the last rule: packets match the last of Idle.
	Off, Shape bool
	// Limit makes the last rule limit ICMP to a rate that is never exceeded, for each source with PerSource.
	Limit, PerSource bool
	// Protect replaces all rules by the protection of another host's service from SYN floods.
	Protect bool
}

// idleSource is the source that idle rule n matches. It is a documentation address (RFC 5737).
func idleSource(n int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, byte(1 + n%254)}) }

// idlePort is the UDP port that idle rule n matches.
func idlePort(n int) int { return 20000 + n }

// Names of objects that filters make. Each filter has a namespace of its own.
const (
	tableName   = "cvfilter"
	chainName   = "drops"
	setName     = "bad"
	counterName = "dropped"
)

// iptablesICMP is the match of iptables for ICMP.
const iptablesICMP = "-p icmp"

// icmpBytecode is the same match as classic BPF, which gets the packet from its IP header on: load the byte at offset 9, compare
// it with 1.
const icmpBytecode = `-m bpf --bytecode "4,48 0 0 9,21 0 1 1,6 0 0 1,6 0 0 0"`

// iptables is the input of iptables-restore: the rules in a chain of a table, after those in before. match is the match of the
// last rule.
func (f ruleSet) iptables(table, chain string, before []string, match string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n:%s ACCEPT [0:0]\n", table, chain)
	for _, rule := range before {
		fmt.Fprintf(&b, "-A %s %s\n", chain, rule)
	}
	for i := range f.Idle {
		fmt.Fprintf(&b, "-A %s -s %s/32 -p udp --dport %d -j DROP\n", chain, idleSource(i), idlePort(i))
	}
	fmt.Fprintf(&b, "-A %s %s -j DROP\nCOMMIT\n", chain, match)
	return b.String()
}

// ipset is the input of 'ipset restore' for the set.
func (f ruleSet) ipset() string {
	size := 1024
	for size < len(f.Set) {
		size *= 2
	}
	var b strings.Builder
	fmt.Fprintf(&b, "create %s hash:net family inet hashsize %d maxelem %d\n", setName, size, max(len(f.Set), 1))
	for _, p := range f.Set {
		fmt.Fprintf(&b, "add %s %s\n", setName, p)
	}
	return b.String()
}

// nft is the input of 'nft -f' for the rules at the ingress hook of a device.
func (f ruleSet) nft(device string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table netdev %s {\n\tcounter %s { }\n", tableName, counterName)
	if len(f.Set) > 0 {
		fmt.Fprintf(&b, "\tset %s {\n\t\ttype ipv4_addr\n\t\tflags interval\n\t\telements = {", setName)
		for i, p := range f.Set {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(p.String())
		}
		b.WriteString("}\n\t}\n")
	}
	fmt.Fprintf(&b, "\tchain %s {\n\t\ttype filter hook ingress device \"%s\" priority 0\n", chainName, device)
	for i := range f.Idle {
		fmt.Fprintf(&b, "\t\tip saddr %s udp dport %d drop\n", idleSource(i), idlePort(i))
	}
	match := "ip protocol icmp"
	if len(f.Set) > 0 {
		match = "ip saddr @" + setName
	}
	fmt.Fprintf(&b, "\t\t%s counter name %s drop\n\t}\n}\n", match, counterName)
	return b.String()
}

// prefixLengths are the prefix lengths in a set, with their share of a thousand prefixes. As on lists of attackers, most are
// subnets of 256 addresses or single addresses.
var prefixLengths = []struct{ bits, share int }{
	{16, 5}, {17, 5}, {18, 10}, {19, 20}, {20, 30}, {21, 30}, {22, 90}, {23, 90}, {24, 620}, {32, 100},
}

// randomPrefixes makes n random IPv4 prefixes, the same each time. They do not overlap, because intervals in sets of nftables
// must not.
func randomPrefixes(n int) []netip.Prefix {
	r := rand.New(rand.NewPCG(load.Seed, uint64(n)))
	taken := make([]bool, 1<<24)
	all := make([]netip.Prefix, 0, n)
	for i, l := range prefixLengths {
		want := n * l.share / 1000
		if i == len(prefixLengths)-1 {
			want = n - len(all)
		}
		for want > 0 {
			// net is the upper 24 bits of a unicast address.
			net := (uint32(1+r.IntN(222))<<16 | uint32(r.IntN(1<<16)))
			size := uint32(1) << max(24-l.bits, 0)
			net &^= size - 1
			// Private and loopback addresses are left out, and those of the bench and of idle rules.
			if reserved := net >> 16; reserved == 10 || reserved == 127 || reserved == 198 || reserved == 203 ||
				slices.Contains(taken[net:net+size], true) {
				continue
			}
			for k := net; k < net+size; k++ {
				taken[k] = true
			}
			host := uint32(0)
			if l.bits > 24 {
				host = uint32(r.IntN(256))
			}
			a := netip.AddrFrom4([4]byte{byte(net >> 16), byte(net >> 8), byte(net), byte(host)})
			all = append(all, netip.PrefixFrom(a, l.bits))
			want--
		}
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}
