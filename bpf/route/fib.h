/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_ROUTE_FIB_H
#define CULVERT_ROUTE_FIB_H

#include "core/rewrite.h"

#include "lpm.h"
#include "maps.h"

/* The kernel's own lookup, for packets that the mirror has no next hop for. */

/* Whether a packet is, or may be, an ICMP error. The kernel may select its path by the packet that the error quotes. */
static __always_inline bool route_icmp_error(const struct packet *pkt, const void *l4)
{
	const void *ip = pkt->data + pkt->l3;
	__u8 type;

	if (pkt->proto != (pkt->ip == 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6))
		return false;
	if (pkt->fragment) { /* only the first fragment has the ICMP header */
		barrier_var(ip);
		if (ip + 20 > pkt->data_end)
			return true;
		if (LOAD16(ip + 6) & bpf_htons(0x1fff))
			return false;
	}
	if (l4 + 1 > pkt->data_end)
		return true;
	type = LOAD8(l4);
	if (pkt->ip == 6)
		return type < 128;
	return type == 3 || type == 4 || type == 5 || type == 11 || type == 12;
}

/*
 * Whether bpf_fib_lookup gets everything that the kernel selects a path by. The multipath hash and policy rules may use
 * ports. route_flow_ports gives the lookup the ports directly behind the IP header of TCP and UDP that is not
 * fragmented. The kernel's dissector (__skb_flow_dissect) also finds the ports of other transports, and those behind
 * IPv6 extension headers.
 */
static __always_inline bool route_flow(const struct packet *pkt, const struct route_state *st)
{
	const void *l4 = pkt->data + pkt->l3 + (pkt->ip == 4 ? 20 : 40);

	switch (pkt->proto) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
		return true;
	case IPPROTO_ICMPV6:
		/* With rules that need dissection the kernel uses another flow label for ICMPv6. */
		if (pkt->ip == 6 && st->rules6)
			return false;
		return !route_icmp_error(pkt, l4);
	case IPPROTO_ICMP:
		return !route_icmp_error(pkt, l4);
	case IPPROTO_ROUTING:
	case IPPROTO_FRAGMENT:
	case IPPROTO_DSTOPTS:
	case IPPROTO_AH:
	case IPPROTO_MH:
		return pkt->ip == 4 && !st->hash4 && !st->rules4;
	}
	return pkt->ip == 4 ? !st->hash4 && !st->rules4 : !st->hash6 && !st->rules6;
}

static __always_inline void route_flow_ports(const struct packet *pkt, struct bpf_fib_lookup *fib)
{
	const __u32 l3_len = pkt->ip == 4 ? 20 : 40;
	const void *l4 = pkt->data + pkt->l3 + l3_len;

	/* Bytes behind the end of the packet do not belong to it. */
	if (pkt->ip_len < l3_len + 4)
		return;
	if (pkt->fragment || (pkt->proto != IPPROTO_TCP && pkt->proto != IPPROTO_UDP))
		return;
	if (l4 + 4 > pkt->data_end)
		return;
	fib->sport = LOAD16(l4);
	fib->dport = dport(pkt, l4);
}

/*
 * Asks the kernel for the route of a packet, or if back is set, for the route to its source. Returns what
 * bpf_fib_lookup returns, or -1 for a truncated header.
 */
static __always_inline int route_ask(struct xdp_md *ctx, const struct packet *pkt, __u32 dev,
				     bool back, struct bpf_fib_lookup *fib)
{
	const void *ip = pkt->data + pkt->l3;

	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = dev;
	fib->l4_protocol = pkt->proto;
	fib->tot_len = back ? 0 : pkt->ip_len;
	barrier_var(ip);
	if (ip + 20 > pkt->data_end)
		return -1;
	if (pkt->ip == 4) {
		fib->family = AF_INET;
		fib->tos = LOAD8(ip + 1);
		fib->ipv4_src = LOAD32(ip + 12);
		fib->ipv4_dst = daddr4(pkt, ip);
		if (back) {
			fib->ipv4_dst = fib->ipv4_src;
			fib->ipv4_src = daddr4(pkt, ip);
		}
	} else {
		if (ip + 40 > pkt->data_end)
			return -1;
		fib->family = AF_INET6;
		fib->flowinfo = LOAD32(ip) & bpf_htonl(0x0fffffff);
		copy(fib->ipv6_src, ip + 8, 16);
		daddr6(pkt, ip, fib->ipv6_dst);
	}
	if (!back)
		route_flow_ports(pkt, fib);
	return bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
}

/* The reason for a lookup that finds no next hop. */
static __always_inline int route_fib_reason(int answer)
{
	switch (answer) {
	case BPF_FIB_LKUP_RET_BLACKHOLE:
		return DROP_ROUTE_BLACKHOLE;
	case BPF_FIB_LKUP_RET_UNREACHABLE:
		return PUNT_ROUTE_UNREACHABLE;
	case BPF_FIB_LKUP_RET_PROHIBIT:
		return PUNT_ROUTE_PROHIBIT;
	case BPF_FIB_LKUP_RET_NOT_FWDED: /* to this host, or no route: the kernel does not tell which */
		return PASS_ROUTE_LOCAL;
	case BPF_FIB_LKUP_RET_FWD_DISABLED:
		return PASS_ROUTE_OFF;
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		return PUNT_ROUTE_NEIGHBOR;
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return PUNT_ROUTE_MTU;
	}
	return PASS_ROUTE_KERNEL; /* a tunnel, for example */
}

static __always_inline __u32 *route_neighbor4(__u32 dev, __be32 addr)
{
	struct route_neighbor key __attribute__((aligned(8))) = {};

	key.dev = dev;
	key.addr.w[2] = IP4_MAPPED;
	key.addr.w[3] = addr;
	return bpf_map_lookup_elem(&route_neighbors, &key);
}

static __always_inline __u32 *route_neighbor6(__u32 dev, const void *addr)
{
	struct route_neighbor key __attribute__((aligned(8))) = {};

	key.dev = dev;
	copy(&key.addr, addr, sizeof(key.addr));
	return bpf_map_lookup_elem(&route_neighbors, &key);
}

/*
 * Marks the neighbor that the lookup has found as used, so that its entry is kept alive. Returns the number of its next hop, 0
 * if it has none.
 */
static __always_inline __u32 route_mark(const struct bpf_fib_lookup *fib, __u32 used)
{
	struct route_hop *hop;
	__u32 *number;

	if (fib->family == AF_INET)
		number = route_neighbor4(fib->ifindex, fib->ipv4_dst);
	else
		number = route_neighbor6(fib->ifindex, fib->ipv6_dst);
	if (!number)
		return 0;
	hop = bpf_map_lookup_elem(&route_hops, number);
	if (hop && hop->used != used)
		*(volatile __u32 *)&hop->used = used;
	return *number;
}

/*
 * Takes the next hop from a lookup, which has compared the MTU. Returns a reason, or 0 or less: the number of the neighbor's next
 * hop with its sign changed, 0 for none.
 */
static __always_inline int route_fib_hop(const struct bpf_fib_lookup *fib, struct route_hop *hop)
{
	struct route_way *way;
	__u32 dev = fib->ifindex;

	hop->dev = dev;
	way = bpf_map_lookup_elem(&route_ways, &dev);
	if (!way || !way->xmit)
		return PASS_ROUTE_EGRESS;
	hop->hop.port = way->port;
	hop->hop.vlan = way->vlan;
	hop->hop.linear_only = way->linear_only;
	hop->hop.mtu = 0xffff;
	/* in steps of 2 bytes, because the verifier refuses unaligned accesses to the stack */
	__builtin_memcpy(hop->hop.dmac, fib->dmac, 6);
	__builtin_memcpy(hop->hop.smac, fib->smac, 6);
	return -(int)route_mark(fib, hop->used);
}

#endif
