// SPDX-License-Identifier: Apache-2.0

// Package cbpftest has expressions, programs and frames for tests of filters. The frames have the addresses and ports of the
// expressions.
package cbpftest

// Expressions has all kinds of expressions that libpcap compiles for Ethernet and that need nothing XDP cannot see.
var Expressions = []string{
	"", // everything

	// Protocols.
	"ip", "ip6", "arp", "rarp", "icmp", "icmp6", "tcp", "udp", "sctp", "igmp", "ah", "esp", "pim", "vrrp",
	"ip proto 47", "ip6 proto 58", "proto 132", "ip proto \\udp", "ether proto 0x88cc", "ether proto \\ip6",
	"stp", "llc", "atalk", "ipx",

	// Hosts and networks.
	"host 192.0.2.1", "src host 10.0.0.1", "dst host 192.0.2.77", "src or dst host 10.0.0.2", "host 2001:db8::1",
	"src host 2001:db8:1::5", "dst host 2001:db8::2 and tcp", "net 192.0.2.0/24", "src net 10.0.0.0/8",
	"dst net 192.0.2.64/26", "net 10", "net 172.16.0.0 mask 255.240.0.0", "net 2001:db8::/32", "dst net 2001:db8:1::/48",
	"arp host 192.0.2.1", "not net 10.0.0.0/8 and not net 192.0.2.0/24", "host 192.0.2.1 or 192.0.2.2 or 192.0.2.3",
	"src host 192.0.2.1 and dst host 10.0.0.1",

	// Ports.
	"port 53", "src port 53", "dst port 443", "tcp port 80", "udp port 53", "sctp port 5000", "portrange 1000-2000",
	"udp dst portrange 33434-33534", "tcp src portrange 0-1023", "port 53 or port 80 or port 443",
	"udp port 53 and net 192.0.2.0/24", "tcp dst port 80 and src net 10.0.0.0/8", "not port 22", "ip6 and udp port 53",

	// Flags and header fields.
	"tcp[tcpflags] & tcp-syn != 0", "tcp[tcpflags] & (tcp-syn|tcp-ack) = tcp-syn", "tcp[tcpflags] == tcp-rst",
	"tcp[13] & 0x3f = 0", "tcp[2:2] > 1023", "tcp[4:4] & 0xff000000 = 0x12000000", "tcp[12] >> 4 > 5",
	"icmp[icmptype] = icmp-echo", "icmp[icmptype] == icmp-unreach and icmp[icmpcode] = 4", "icmp6[0] = 135",
	"icmp6[icmp6type] = icmp6-echo", "udp[4:2] > 100", "udp[6:2] = 0", "ip[8] < 5", "ip[1] & 0xfc == 0xb8", "ip6[7] < 5",
	"ip[0] & 0xf > 5", "ip[0] & 0xf != 5 and tcp", "ip[2:2] - ((ip[0] & 0xf) << 2) - ((tcp[12] & 0xf0) >> 2) != 0",
	"udp[8:4] = 0x64313a61", "tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420", "ip[16:4] & 0xff = 77",
	"ip[12:4] = ip[16:4]", "ether[12:2] = ip[2:2] or ip[4:2] & 1 = 1", "ip[ip[9] + 3] = 7", "(ip[8] * 3 + 7) % 5 = 2",
	"ip[4:2] / ip[8] > 100", "ip[4:2] % (ip[8] & 3) = 1", "ether[len - 1] = 0", "ip[0] ^ 0x40 = 5", "-ip[8] & 0xff = 192",
	"ip[4:2] << (ip[8] & 0x3f) > 0x10000", "ip[4:2] >> (ip[8] & 0x3f) = 1", "ip[6] | ip[7] != 0",

	// Fragments.
	"ip[6:2] & 0x3fff != 0", "ip[6:2] & 0x1fff = 0 and udp", "ip6 proto 44", "ip[6] & 0x20 != 0 and udp",

	// Lengths.
	"greater 100", "less 64", "len = 60", "len > 1500", "greater 60 and less 128 and udp", "ip[2:2] > 576",

	// Ethernet.
	"ether host 02:00:00:00:00:01", "ether src 02:00:00:00:00:02", "ether dst 02:00:00:00:00:03", "ether broadcast",
	"ether multicast", "ether[0] & 1 = 0 and ip multicast", "ip multicast", "ip6 multicast", "ether[6:4] = 0x02000000",

	// Tags and tunnels.
	"vlan", "vlan 100", "vlan 100 and ip", "vlan and host 192.0.2.1", "vlan 200 and vlan 100", "vlan and vlan and udp port 53",
	"vlan and ip6 and tcp port 443", "not vlan and ip", "mpls", "mpls 1000 and ip", "mpls and mpls 17 and host 10.0.0.1",
	"pppoed", "pppoes", "pppoes 7 and ip", "pppoes and ip6 and udp", "vlan and pppoes and tcp",

	// Mixes.
	"icmp or arp", "(tcp or udp) and (port 53 or port 123) and not host 192.0.2.1", "not (ip or ip6)", "not icmp and not arp",
	"ip and not (tcp or udp or icmp)", "tcp and (src net 10.0.0.0/8 or dst net 172.16.0.0/12) and not port 22",
	"udp and greater 200 and src port 53 and not src net 192.0.2.0/25", "ip6 and (tcp or udp) and portrange 1-1023",
	"(ip and ip[8] = 64) or (ip6 and ip6[7] = 64)", "!(tcp[tcpflags] & tcp-ack != 0) && tcp",
	"ether src 02:00:00:00:00:02 and ip and udp dst port 53 and len < 200", "arp and arp[6:2] = 1 and arp[24:4] = 0xc0000201",
}
