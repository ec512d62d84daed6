/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_FILTER_FLOW_KEYS_H
#define CULVERT_FILTER_FLOW_KEYS_H

#include "count.h"
#include "core/packet.h"

/* The fields of a packet that sets, limits, talkers and services use. Expressions read the packet themselves. */
struct flow_keys {
	struct ip_addr src;
	struct ip_addr dst;
	__be16 sport; /* of TCP, UDP and the like, 0 if there is none */
	__be16 dport;
	__u8 ip; /* 4 or 6; 0 for other protocols and malformed packets */
	__u8 proto; /* of the transport header, behind extension headers */
	__u8 ports; /* sport and dport were found */
	__u8 missed; /* KEYS_, what could not be read */
	/* Offset of the IP header from data, bytes. 0: tags were not read, or a field in filter_must was missed. */
	__u16 l3;
	/* Offset of the transport header from data. 0: it is not in the first buffer, or in another fragment. */
	__u16 l4;
	/*
	 * What lookups of rules have found (filterplane): the first rule that matches, and the first that reads beyond the end
	 * of the frame. Ranks are higher for rules further in front. 0: there is none.
	 */
	__u32 rank;
	__u32 rule; /* twice the index of its counters, plus 1 if it drops */
	__u32 cut; /* the rank of the other one */
} __attribute__((aligned(8)));

/* What could not be read of a packet. */
#define KEYS_SHORT 1 /* the packet was counted under FILTER_SHORT */
#define KEYS_ADDRESS 2 /* there are addresses, but not where the filter reads them */
#define KEYS_PORTS 4 /* there may be ports, but not where the filter reads them */

/* The KEYS_ that a rule needs. A packet is dropped if one of them could not be read. Fixed at load time. */
const volatile __u8 filter_must;

static __always_inline void flow_keys_missed(struct flow_keys *keys, __u8 what)
{
	keys->missed |= what;
	if (what & filter_must)
		keys->l3 = 0;
}

/* Counts a packet that ends before a field that a rule reads. It is counted once for all rules. */
__noinline int filter_short(struct xdp_md *ctx, struct flow_keys *keys)
{
	if (keys && !(keys->missed & KEYS_SHORT)) {
		keys->missed |= KEYS_SHORT;
		filter_hit(ctx, FILTER_SHORT);
	}
	return 0;
}

/* The most tags, and the most extension headers, that are skipped. */
#define KEYS_TAGS 2
#define KEYS_HEADERS 8

#ifndef IPPROTO_SCTP
#define IPPROTO_SCTP 132
#endif
#ifndef IPPROTO_UDPLITE
#define IPPROTO_UDPLITE 136
#endif

/*
 * Reads the ports. at is the offset of the transport header and end that of the end of the packet, both from data.
 * Bytes after end do not belong to the packet.
 */
static __always_inline void flow_keys_ports(struct flow_keys *keys, const void *data,
					    const void *data_end, __u32 at, __u32 end)
{
	const void *l4 = data + at;

	if (at + 4 > end)
		return;
	if (l4 + 4 > data_end) {
		flow_keys_missed(keys, KEYS_PORTS);
		return;
	}
	keys->l4 = at;
	switch (keys->proto) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_UDPLITE:
	case IPPROTO_SCTP:
		keys->sport = LOAD16(l4);
		keys->dport = LOAD16(l4 + 2);
		keys->ports = 1;
	}
}

/*
 * Whether a header that the first buffer does not have is in another buffer. If so, the fields are recorded as missed.
 */
static __always_inline bool flow_keys_elsewhere(struct flow_keys *keys, __u32 end, __u32 frame)
{
	if (end > frame)
		return false;
	flow_keys_missed(keys, KEYS_ADDRESS | KEYS_PORTS);
	return true;
}

static __always_inline bool flow_keys_ipv4(struct flow_keys *keys, const void *data,
					   const void *data_end, __u32 frame)
{
	const void *ip = data + keys->l3;
	__u32 header, len;

	if (ip + sizeof(struct iphdr) > data_end)
		return flow_keys_elsewhere(keys, keys->l3 + sizeof(struct iphdr), frame);
	header = (LOAD8(ip) & 15) * 4;
	len = bpf_ntohs(LOAD16(ip + 2));
	if (LOAD8(ip) >> 4 != 4 || header < sizeof(struct iphdr) || len < header ||
	    keys->l3 + len > frame)
		return false;
	keys->ip = 4;
	keys->src.w[2] = keys->dst.w[2] = IP4_MAPPED;
	keys->src.w[3] = LOAD32(ip + 12);
	keys->dst.w[3] = LOAD32(ip + 16);
	keys->proto = LOAD8(ip + 9);
	if (!(LOAD16(ip + 6) & bpf_htons(0x1fff)))
		flow_keys_ports(keys, data, data_end, keys->l3 + header, keys->l3 + len);
	return true;
}

/* Walks the extension headers (RFC 8200, 4.1) to the transport header. */
static __always_inline void flow_keys_extensions(struct flow_keys *keys, const void *data,
						 const void *data_end, __u32 end)
{
	__u32 at = keys->l3 + sizeof(struct ipv6hdr);
	const void *h;
	int i;

	/* The last iteration reads the transport header behind KEYS_HEADERS extension headers. */
	for (i = 0; i <= KEYS_HEADERS; i++) {
		h = data + at;
		switch (keys->proto) {
		case IPPROTO_HOPOPTS:
		case IPPROTO_ROUTING:
		case IPPROTO_DSTOPTS:
		case IPPROTO_AH:
		case IPPROTO_FRAGMENT:
			if (at + 8 > end)
				return;
			break;
		default:
			flow_keys_ports(keys, data, data_end, at, end);
			return;
		}
		if (h + 8 > data_end)
			break;
		switch (keys->proto) {
		case IPPROTO_AH:
			at += (LOAD8(h + 1) + 2) * 4;
			break;
		case IPPROTO_FRAGMENT:
			if (LOAD16(h + 2) & bpf_htons(0xfff8)) {
				keys->proto = LOAD8(h);
				return;
			}
			at += 8;
			break;
		default:
			at += (LOAD8(h + 1) + 1) * 8;
		}
		keys->proto = LOAD8(h);
		if (at > 0x7fff)
			break;
	}
	flow_keys_missed(keys, KEYS_PORTS);
}

static __always_inline bool flow_keys_ipv6(struct flow_keys *keys, const void *data,
					   const void *data_end, __u32 frame)
{
	const void *ip = data + keys->l3;
	__u32 end = keys->l3 + sizeof(struct ipv6hdr);

	if (ip + sizeof(struct ipv6hdr) > data_end)
		return flow_keys_elsewhere(keys, end, frame);
	if (LOAD8(ip) >> 4 != 6)
		return false;
	end += bpf_ntohs(LOAD16(ip + 4));
	if (end > frame)
		return false;
	keys->ip = 6;
	copy(&keys->src, ip + 8, 16);
	copy(&keys->dst, ip + 24, 16);
	keys->proto = LOAD8(ip + 6);
	/*
	 * If the payload length is 0 the kernel takes the whole frame, whether the packet is a jumbogram or not
	 * (ip6_rcv_core).
	 */
	if (!LOAD16(ip + 4) && keys->proto == IPPROTO_HOPOPTS)
		end = frame;
	flow_keys_extensions(keys, data, data_end, end);
	return true;
}

/*
 * Reads addresses and ports. If tagged is 0, it reads nothing of a frame that may have tags, and keys->l3 stays 0. It
 * is a global function, which the verifier checks once.
 */
__noinline int flow_keys_parse(struct xdp_md *ctx, struct flow_keys *keys, __u32 tagged)
{
	const void *data = (void *)(long)ctx->data;
	const void *data_end = (void *)(long)ctx->data_end;
	__u32 frame, l3 = ETH_HLEN, i;
	bool good = true;
	__be16 type;

	if (!keys)
		return 0;
	frame = bpf_xdp_get_buff_len(ctx);
	if (data + ETH_HLEN > data_end) {
		if (tagged)
			flow_keys_elsewhere(keys, ETH_HLEN, frame);
		return 0;
	}
	type = LOAD16(data + 12);
	if (type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD)) {
		if (!tagged)
			return 0;
#pragma unroll
		for (i = 0; i < KEYS_TAGS; i++) {
			if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
				break;
			if (data + ETH_HLEN + VLAN_HLEN * (i + 1) > data_end)
				return 0;
			type = LOAD16(data + ETH_HLEN + VLAN_HLEN * i + 2);
			l3 += VLAN_HLEN;
		}
	}
	keys->l3 = l3;
	if (l3 > ETH_HLEN + KEYS_TAGS * VLAN_HLEN)
		return 0;
	if (type == bpf_htons(ETH_P_IP))
		good = flow_keys_ipv4(keys, data, data_end, frame);
	else if (type == bpf_htons(ETH_P_IPV6))
		good = flow_keys_ipv6(keys, data, data_end, frame);
	if (!good)
		filter_hit(ctx, FILTER_MALFORMED);
	return 0;
}

#endif
