// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"fmt"
	"strings"

	"culvert/internal/bench/peer"
)

// table is the name of the table of nftables. Each peer has a namespace of its own.
const table = "cvlb"

// hashExpr is the expression by which nftables picks a backend: a hash of the client's address and port, as culvert's.
var hashExpr = fmt.Sprintf("jhash ip saddr . tcp sport mod %d", backendCount)

// service and serviceIPTables match the service, in the languages of nftables and iptables.
var (
	service         = fmt.Sprintf("ip daddr %s tcp dport %d", vip4.Addr(), vip4.Port())
	serviceIPTables = fmt.Sprintf("-d %s/32 -p tcp --dport %d", vip4.Addr(), vip4.Port())
)

// elements lists the elements of a map of nftables, one for each backend.
func elements(element func(n int) string) string {
	all := make([]string, backendCount)
	for i := range all {
		all[i] = element(i)
	}
	return "{ " + strings.Join(all, ", ") + " }"
}

// byNumber lists the elements of a map of nftables from the number of a backend to a value.
func byNumber(value func(n int) any) string {
	return elements(func(n int) string { return fmt.Sprintf("%d : %v", n, value(n)) })
}

func addrValue(n int) any { return backendAddr(n) }
func macValue(n int) any  { return backendMAC(n) }

// nftJHash is the input of 'nft -f' for DNAT by a hash, with connection tracking.
func nftJHash() string {
	return fmt.Sprintf("table ip %s {\n\tchain balance {\n\t\ttype nat hook prerouting priority dstnat\n"+
		"\t\t%s dnat to %s map %s\n\t}\n}\n", table, service, hashExpr, byNumber(addrValue))
}

// nftNetdev is the input of 'nft -f' for the same without state, at the ingress hook of a device. It replaces the destination,
// and sends the packet out of the other device to the backend's Ethernet address.
func nftNetdev(p peer.Path) string {
	macs := elements(func(n int) string { return fmt.Sprintf("%s : %s", backendAddr(n), backendMAC(n)) })
	return fmt.Sprintf("table netdev %s {\n\tmap macs {\n\t\ttype ipv4_addr : ether_addr\n\t\telements = %s\n\t}\n"+
		"\tchain balance {\n\t\ttype filter hook ingress device \"%s\" priority 0\n"+
		"\t\t%s ip daddr set %s map %s ether daddr set ip daddr map @macs ether saddr set %s fwd to \"%s\"\n\t}\n}\n",
		table, macs, p.In.Name, service, hashExpr, byNumber(addrValue), p.Out.MAC, p.Out.Name)
}

// nftLayer2 is the input of 'nft -f' for replacing only Ethernet addresses, for backends that have the VIP as their address.
func nftLayer2(p peer.Path) string {
	return fmt.Sprintf("table netdev %s {\n\tchain balance {\n\t\ttype filter hook ingress device \"%s\" priority 0\n"+
		"\t\t%s ether daddr set %s map %s ether saddr set %s fwd to \"%s\"\n\t}\n}\n",
		table, p.In.Name, service, hashExpr, byNumber(macValue), p.Out.MAC, p.Out.Name)
}

// iptablesStatistic is the input of iptables-restore with a rule for each backend, which takes its share of the connections that
// the rules before have left. Only the first packet of a connection reaches the rules.
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

// ipvs is the input of 'ipvsadm -R' for a service with a scheduler, and its backends with a forwarding method: -i for tunnels, -m
// for NAT. Flags make the scheduler use the client's port too.
func ipvs(scheduler, forward string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "-A -t %s -s %s -b %s-port\n", vip4, scheduler, scheduler)
	for i := range backendCount {
		fmt.Fprintf(&b, "-a -t %s -r %s:%d %s -w 1\n", vip4, backendAddr(i), vip4.Port(), forward)
	}
	return b.String()
}
