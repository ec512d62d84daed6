/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_PACKET_H
#define CULVERT_CORE_PACKET_H

#include "compiler.h"
#include "limit.h"
#include "port.h"
#include "counters.h"

/* An IPv6 address, or an IPv4 address mapped into one (RFC 4291, 2.5.5.2); network order. */
struct ip_addr {
	__be32 w[4];
};

#define IP4_MAPPED bpf_htonl(0x0000ffff)

/* Whether the IP router and the balancer are on. Fixed at load time. */
const volatile bool route_on;
const volatile bool balance_on;

/* Whether a stage wants to know more of IP packets than what SCION's datagrams need. */
static __always_inline bool ip_on(void)
{
	return route_on || balance_on;
}

#define PACKET_TAGGED 0x1000
#define VLAN_HLEN 4

/* Where the addresses are, from data, bytes. */
#define IPV4_SADDR (ETH_HLEN + 12)
#define IPV4_DADDR (ETH_HLEN + 16)
#define IPV6_SADDR (ETH_HLEN + 8)
#define IPV6_DADDR (ETH_HLEN + 24)

/* What parsing found. */
struct packet {
	void *data;
	void *data_end;
	__u32 len; /* of the frame, or of its first buffer if that was enough */
	struct port *port; /* of the ingress interface, NULL if it is not ours */
	bool udp; /* plain UDP, all headers where they belong */
	bool v6;
	__u32 l4_len; /* UDP header and payload, bytes */
	__be16 sport;
	__be16 dport;
	__u16 check; /* of UDP, as it stands in the header */
	/* for the IP router and the balancer alone */
	__u8 ip; /* 4 or 6: a packet of that version to this interface; 0: none */
	__u8 l3; /* where its header is, from data, bytes */
	__u8 proto; /* of IPv4, or next header */
	bool fragment; /* of IPv4 */
	__u16 vlan; /* PACKET_TAGGED + VLAN ID of its only tag, or 0 */
	__u16 odd; /* reason not to forward it, wherever to */
	__u32 ip_len; /* header and payload, bytes */
	/* set by the stage that forwards */
	__u32 egress;
};

/*
 * Loads and stores at any alignment: the JITs and the verifier allow them on packets. And of any size: clang must not
 * think that bytes stored as one type are others than those loaded as another.
 */
typedef __u16 __attribute__((may_alias)) any16;
typedef __u32 __attribute__((may_alias)) any32;
typedef __u64 __attribute__((may_alias)) any64;

#define LOAD8(p) (*(const __u8 *)(p))
#define LOAD16(p) (*(const any16 *)(p))
#define LOAD32(p) (*(const any32 *)(p))
#define LOAD64(p) (*(const any64 *)(p))
#define STORE16(p, v) (*(any16 *)(p) = (v))
#define STORE32(p, v) (*(any32 *)(p) = (v))
#define STORE64(p, v) (*(any64 *)(p) = (v))

/* Whether a frame says that it comes from a group address (IEEE 802.3, 3.2.3): no answer may go there. */
static __always_inline bool from_group(const void *data)
{
	return LOAD8(data + 6) & 1;
}

/* Copies n bytes, an even constant, in the widest steps; clang would do it byte by byte. */
static __always_inline void copy(void *dst, const void *src, const __u32 n)
{
	__u32 i = 0;

#pragma unroll
	for (; i + 8 <= n; i += 8)
		STORE64(dst + i, LOAD64(src + i));
	if (n & 4) {
		STORE32(dst + i, LOAD32(src + i));
		i += 4;
	}
	if (n & 2)
		STORE16(dst + i, LOAD16(src + i));
}

/* Folds a sum of fewer than 64 words of 32 bits to 16 bits (RFC 1071). */
static __always_inline __u16 csum_fold(__u64 sum)
{
	__u32 part = (sum & 0xffff) + (sum >> 16);

	part = (part & 0xffff) + (part >> 16);
	return part + (part >> 16);
}

static __always_inline void parse_udp(struct packet *pkt, void *udp, __u32 l4_len)
{
	if (udp + sizeof(struct udphdr) > pkt->data_end)
		return;
	/* The kernel would trim to a shorter length; leave that to it. */
	if (bpf_ntohs(LOAD16(udp + 4)) != l4_len)
		return;
	pkt->sport = LOAD16(udp);
	pkt->dport = LOAD16(udp + 2);
	pkt->check = LOAD16(udp + 6);
	pkt->l4_len = l4_len;
	pkt->udp = true;
}

/* Whether the frame has that many bytes; more than the first buffer of it is asked for if need be. */
static __always_inline bool frame_holds(struct xdp_md *ctx, struct packet *pkt, __u32 len)
{
	if (len > pkt->len)
		pkt->len = bpf_xdp_get_buff_len(ctx);
	return len <= pkt->len;
}

/* Whether an IPv4 header of 20 bytes adds up to what its checksum says (RFC 1071). */
static __always_inline bool ipv4_checks(const void *ip)
{
	__u64 sum = (__u64)LOAD32(ip) + LOAD32(ip + 4) + LOAD32(ip + 8) + LOAD32(ip + 12) +
		    LOAD32(ip + 16);

	return csum_fold(sum) == 0xffff;
}

static __always_inline void parse_ipv4(struct xdp_md *ctx, struct packet *pkt, const __u32 l3)
{
	void *ip = pkt->data + l3;
	__u32 len;

	if (ip + sizeof(struct iphdr) > pkt->data_end)
		return;
	if (ip_on()) {
		pkt->ip = 4;
		pkt->l3 = l3;
		pkt->proto = LOAD8(ip + 9);
		pkt->fragment = LOAD16(ip + 6) & bpf_htons(0x3fff);
		pkt->odd = PUNT_ROUTE_MALFORMED;
		if (LOAD8(ip) > 0x45 && LOAD8(ip) < 0x50)
			pkt->odd = PUNT_ROUTE_OPTIONS;
		if (LOAD8(ip) != 0x45)
			return;
	} else if (LOAD8(ip) != 0x45 || LOAD16(ip + 6) & bpf_htons(0x3fff) ||
		   LOAD8(ip + 9) != IPPROTO_UDP) {
		return; /* options, a fragment, not UDP */
	}
	len = bpf_ntohs(LOAD16(ip + 2));
	if (len < sizeof(struct iphdr) + (ip_on() ? 0 : sizeof(struct udphdr)) ||
	    !frame_holds(ctx, pkt, l3 + len))
		return;
	if (!ipv4_checks(ip))
		return;
	pkt->ip_len = len;
	pkt->odd = 0;
	if (l3 != ETH_HLEN)
		return;
	if (ip_on() && (pkt->fragment || pkt->proto != IPPROTO_UDP ||
			len < sizeof(struct iphdr) + sizeof(struct udphdr)))
		return;
	parse_udp(pkt, ip + sizeof(struct iphdr), len - sizeof(struct iphdr));
}

static __always_inline void parse_ipv6(struct xdp_md *ctx, struct packet *pkt, const __u32 l3)
{
	void *ip = pkt->data + l3;
	__u32 len;

	if (ip + sizeof(struct ipv6hdr) > pkt->data_end)
		return;
	if (ip_on()) {
		pkt->ip = 6;
		pkt->l3 = l3;
		pkt->proto = LOAD8(ip + 6);
		pkt->odd = PUNT_ROUTE_MALFORMED;
	} else if (LOAD8(ip + 6) != IPPROTO_UDP) {
		return;
	}
	if ((LOAD8(ip) & 0xf0) != 0x60)
		return;
	len = bpf_ntohs(LOAD16(ip + 4));
	if ((!ip_on() && len < sizeof(struct udphdr)) ||
	    !frame_holds(ctx, pkt, l3 + sizeof(struct ipv6hdr) + len))
		return;
	pkt->ip_len = sizeof(struct ipv6hdr) + len;
	pkt->odd = 0;
	if (ip_on() && pkt->proto == IPPROTO_HOPOPTS)
		pkt->odd = PUNT_ROUTE_OPTIONS;
	if (l3 != ETH_HLEN ||
	    (ip_on() && (pkt->proto != IPPROTO_UDP || len < sizeof(struct udphdr))))
		return;
	pkt->v6 = true;
	parse_udp(pkt, ip + sizeof(struct ipv6hdr), len);
	/* RFC 8200, 8.1: without a checksum it is not for SCION to forward. */
	if (!pkt->check)
		pkt->udp = false;
}

/* One 802.1Q tag. Frames with more of them, and with 802.1ad's, are the kernel's. */
static __always_inline void parse_vlan(struct xdp_md *ctx, struct packet *pkt)
{
	__u16 id;

	if (pkt->data + ETH_HLEN + VLAN_HLEN > pkt->data_end)
		return;
	id = bpf_ntohs(LOAD16(pkt->data + ETH_HLEN)) & 0xfff;
	if (!id) /* a priority alone */
		return;
	pkt->vlan = PACKET_TAGGED + id;
	switch (LOAD16(pkt->data + ETH_HLEN + 2)) {
	case bpf_htons(ETH_P_IP):
		parse_ipv4(ctx, pkt, ETH_HLEN + VLAN_HLEN);
		break;
	case bpf_htons(ETH_P_IPV6):
		parse_ipv6(ctx, pkt, ETH_HLEN + VLAN_HLEN);
		break;
	}
}

/* Walks the headers once. pkt->udp stays false for anything but plain UDP to this interface. */
static __always_inline void parse(struct xdp_md *ctx, struct packet *pkt)
{
	__u32 ifindex = ctx->ingress_ifindex;
	struct port *port;

	pkt->data = (void *)(long)ctx->data;
	pkt->data_end = (void *)(long)ctx->data_end;
	pkt->len = pkt->data_end - pkt->data;
	port = bpf_map_lookup_elem(&ports, &ifindex);
	if (!port || !port->slot)
		return;
	pkt->port = port;
	if (pkt->data + ETH_HLEN > pkt->data_end)
		return;
	/* Frames to another host reach us in promiscuous mode; they are the kernel's. */
	if (LOAD32(pkt->data) != LOAD32(port->mac) || LOAD16(pkt->data + 4) != port->mac[2])
		return;
	switch (LOAD16(pkt->data + 12)) {
	case bpf_htons(ETH_P_IP):
		parse_ipv4(ctx, pkt, ETH_HLEN);
		break;
	case bpf_htons(ETH_P_IPV6):
		parse_ipv6(ctx, pkt, ETH_HLEN);
		break;
	case bpf_htons(ETH_P_8021Q):
		if (ip_on())
			parse_vlan(ctx, pkt);
		break;
	}
}

#endif
