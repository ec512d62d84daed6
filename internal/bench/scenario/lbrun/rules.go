// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"fmt"
	"strings"

	"culvert/internal/bench/peer"
)

// table is the name of what nftables is told to make. Each peer has a namespace of its own.
const table = "cvlb"

// hashExpr is how nftables chooses among backends: by the client's address and port, as culvert does.
var hashExpr = fmt.Sprintf("jhash ip saddr . tcp sport mod %d", backendCount)

// service is what nftables and iptables match.
var (
	service         = fmt.Sprintf("ip daddr %s tcp dport %d", vip4.Addr(), vip4.Port())
	serviceIPTables = fmt.Sprintf("-d %s/32 -p tcp --dport %d", vip4.Addr(), vip4.Port())
)

// elements lists what there is of each backend, for a map of nftables.
func elements(of func(n int) string) string {
	all := make([]string, backendCount)
	for i := range all {
		all[i] = of(i)
	}
	return "{ " + strings.Join(all, ", ") + " }"
}

// numbered has each backend by its number.
func numbered(what func(n int) any) string {
	return elements(func(n int) string { return fmt.Sprintf("%d : %v", n, what(n)) })
}

func addressOf(n int) any { return backendAddr(n) }
func mac(n int) any       { return backendMAC(n) }

// nftJHash is the text that 'nft -f' takes for DNAT by a hash, with connection tracking.
func nftJHash() string {
	return fmt.Sprintf("table ip %s {\n\tchain balance {\n\t\ttype nat hook prerouting priority dstnat\n"+
		"\t\t%s dnat to %s map %s\n\t}\n}\n", table, service, hashExpr, numbered(addressOf))
}

// nftNetdev is the same without state, at the ingress of a device: the destination is replaced, and the packet sent out of
// the other device to the backend's own Ethernet address.
func nftNetdev(p peer.Path) string {
	macs := elements(func(n int) string { return fmt.Sprintf("%s : %s", backendAddr(n), backendMAC(n)) })
	return fmt.Sprintf("table netdev %s {\n\tmap macs {\n\t\ttype ipv4_addr : ether_addr\n\t\telements = %s\n\t}\n"+
		"\tchain balance {\n\t\ttype filter hook ingress device \"%s\" priority 0\n"+
		"\t\t%s ip daddr set %s map %s ether daddr set ip daddr map @macs ether saddr set %s fwd to \"%s\"\n\t}\n}\n",
		table, macs, p.In.Name, service, hashExpr, numbered(addressOf), p.Out.MAC, p.Out.Name)
}

// nftLayer2 replaces nothing but Ethernet addresses: backends have the service's address themselves.
func nftLayer2(p peer.Path) string {
	return fmt.Sprintf("table netdev %s {\n\tchain balance {\n\t\ttype filter hook ingress device \"%s\" priority 0\n"+
		"\t\t%s ether daddr set %s map %s ether saddr set %s fwd to \"%s\"\n\t}\n}\n",
		table, p.In.Name, service, hashExpr, numbered(mac), p.Out.MAC, p.Out.Name)
}

// iptablesStatistic is the text that iptables-restore takes: a rule for each backend, which takes its share of what is left
// of the connections. Only the first packet of a connection gets there.
func iptablesStatistic() string {
	var b strings.Builder
	b.WriteString("*nat\n:PREROUTING ACCEPT [0:0]\n")
	for i := range backendCount {
		share := ""
		if left := backendCount - i; left > 1 {
			share = fmt.Sprintf(" -m statistic --mode random --probability %.8f", 1/float64(left))
		}
		fmt.Fprintf(&b, "-A PREROUTING %s%s -j DNAT --to-destination %s\n", serviceIPTables, share, backendAddr(i))
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// ipvs is the text that 'ipvsadm -R' takes: a service with a scheduler, and its backends by a way to forward: -i for
// tunnels, -m for NAT. Flags have the scheduler heed the client's port too.
func ipvs(scheduler, forward string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "-A -t %s -s %s -b %s-port\n", vip4, scheduler, scheduler)
	for i := range backendCount {
		fmt.Fprintf(&b, "-a -t %s -r %s:%d %s -w 1\n", vip4, backendAddr(i), vip4.Port(), forward)
	}
	return b.String()
}
