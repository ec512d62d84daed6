/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_REWRITE_H
#define CULVERT_CORE_REWRITE_H

#include "checksum.h"
#include "packet.h"

/*
 * A stage may give a packet another destination and leave the decision to later stages. The frame keeps its destination
 * until a later stage forwards it. Then verdict() writes the new destination. A packet that is passed, punted or
 * dropped is unchanged.
 *
 * A stage asks for this with NEEDS_REWRITE in NAME_NEEDS, and calls rewrite_to(). Later stages read destinations with
 * daddr4(), daddr6() and dport().
 */

/* The new destination, NULL for a packet that keeps its own. */
static __always_inline const struct rewrite *rewritten(const struct packet *pkt)
{
#if MAY_REWRITE
	if (pkt->rewrite.on)
		return &pkt->rewrite;
#endif
	return NULL;
}

/* Offset of the ports from the IP header, bytes. The packet has no options and no extension headers. */
static __always_inline __u32 l4_offset(const struct packet *pkt)
{
	return pkt->ip == 4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
}

/* Bytes of a transport header up to the end of its checksum (RFC 9293, RFC 768). */
#define REWRITE_TCP_LEN 18
#define REWRITE_UDP_LEN 8

/*
 * Whether the packet can get another destination. It has to be unfragmented TCP or UDP without IP options, with ports
 * and checksum inside the packet and in the first buffer. Needs PARSE_IP.
 */
static __always_inline bool can_rewrite(const struct packet *pkt)
{
	const void *l4 = pkt->data + pkt->l3 + l4_offset(pkt);
	__u32 room = pkt->ip_len - l4_offset(pkt);

	/* A packet with NO_FWD_NONE has its whole IP header. */
	if (!pkt->ip || pkt->no_fwd_reason || pkt->fragment)
		return false;
	switch (pkt->proto) {
	case IPPROTO_TCP:
		return room >= REWRITE_TCP_LEN && l4 + REWRITE_TCP_LEN <= pkt->data_end;
	case IPPROTO_UDP:
		return room >= REWRITE_UDP_LEN && l4 + REWRITE_UDP_LEN <= pkt->data_end;
	}
	return false;
}

/* Gives the packet another destination of its own family, after can_rewrite() has allowed it. */
static __always_inline void rewrite_to(struct packet *pkt, const struct ip_addr *addr, __be16 port)
{
#if MAY_REWRITE
	copy(&pkt->rewrite.addr, addr, sizeof(*addr));
	pkt->rewrite.port = port;
	pkt->rewrite.on = true;
#endif
}

/* The destination that stages decide by. The caller has checked that the packet has the IPv4 header at ip, 20 bytes. */
static __always_inline __be32 daddr4(const struct packet *pkt, const void *ip)
{
	const struct rewrite *to = rewritten(pkt);

	return to ? to->addr.w[3] : LOAD32(ip + 16);
}

/*
 * 8 bytes of the destination that stages decide by, from byte `from` of the address on. The caller has checked that the
 * packet has the IPv6 header at ip, 40 bytes.
 */
static __always_inline __be64 daddr6_half(const struct packet *pkt, const void *ip,
					  const __u32 from)
{
	const struct rewrite *to = rewritten(pkt);

	return to ? LOAD64((const void *)&to->addr + from) : LOAD64(ip + 24 + from);
}

/* Copies the whole destination that stages decide by, 16 bytes. */
static __always_inline void daddr6(const struct packet *pkt, const void *ip, void *to)
{
	STORE64(to, daddr6_half(pkt, ip, 0));
	STORE64(to + 8, daddr6_half(pkt, ip, 8));
}

/*
 * The destination port that stages decide by. The caller has checked that the packet has 4 bytes of TCP or UDP at l4.
 */
static __always_inline __be16 dport(const struct packet *pkt, const void *l4)
{
	const struct rewrite *to = rewritten(pkt);

	return to ? to->port : LOAD16(l4 + 2);
}

/*
 * Returns a checksum after words of the sum `from` have been replaced by words of the sum `to` (RFC 1624, equation 3).
 */
static __always_inline __u16 csum_replace(__u16 check, __u64 from, __u64 to)
{
	return ~csum_fold((__u16)~check + (__u64)(__u16)~csum_fold(from) + csum_fold(to));
}

/* Updates a UDP checksum. It is optional over IPv4: 0 stands for none, and 0xffff for a sum of 0 (RFC 768). */
static __always_inline void rewrite_udp_check(void *check, __u64 from, __u64 to)
{
	__u16 sum = LOAD16(check);

	if (sum)
		STORE16(check, csum_replace(sum, from, to) ?: 0xffff);
}

/*
 * Writes the new destination into a frame that is going out. The stage that forwards may have moved the headers, so
 * they are located again, behind the tag if there is one. This cannot fail for a packet that can_rewrite() has allowed.
 */
static __noinline int rewrite_apply(struct xdp_md *ctx, const struct packet *pkt,
				    const struct rewrite *rewrite)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	const struct ip_addr *addr = &rewrite->addr;
	__u64 from, to;
	void *ip, *l4;

	if (data + ETH_HLEN + VLAN_HLEN > data_end)
		return -1;
	ip = data + ETH_HLEN;
	if (LOAD16(data + 12) == bpf_htons(ETH_P_8021Q))
		ip += VLAN_HLEN;
	if (ip + sizeof(struct iphdr) + REWRITE_UDP_LEN > data_end)
		return -1;
	if (pkt->ip == 4) {
		from = LOAD32(ip + 16);
		to = addr->w[3];
		STORE16(ip + 10, csum_replace(LOAD16(ip + 10), from, to));
		STORE32(ip + 16, addr->w[3]);
		l4 = ip + sizeof(struct iphdr);
	} else {
		if (ip + sizeof(struct ipv6hdr) + REWRITE_UDP_LEN > data_end)
			return -1;
		from = ipv6_sum(ip + 24);
		to = ipv6_sum(addr);
		copy(ip + 24, addr, sizeof(*addr));
		l4 = ip + sizeof(struct ipv6hdr);
	}
	if (l4 + REWRITE_UDP_LEN > data_end)
		return -1;
	from += LOAD16(l4 + 2);
	to += rewrite->port;
	STORE16(l4 + 2, rewrite->port);
	if (pkt->proto == IPPROTO_UDP) {
		rewrite_udp_check(l4 + 6, from, to);
		return 0;
	}
	if (l4 + REWRITE_TCP_LEN > data_end)
		return -1;
	STORE16(l4 + 16, csum_replace(LOAD16(l4 + 16), from, to));
	return 0;
}

#endif
