/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_DECAP_OUTER_H
#define CULVERT_DECAP_OUTER_H

#include "tunnel.h"

#define DECAP_FOUND 0xffff /* no reason yet: go on */

/* Whether the packet is a tunnel's, by its protocol or by its UDP port. */
static __always_inline bool decap_is_tunnel(struct tunnel *t)
{
	struct udphdr *udp;

	if (t->proto == IPPROTO_IPIP || t->proto == IPPROTO_IPV6)
		return true;
	if (t->proto != IPPROTO_UDP)
		return false;
	udp = decap_header(t, t->l4, sizeof(*udp));
	t->gue = udp && udp->dest == decap_gue_port;
	return t->gue;
}

static __always_inline __u32 decap_sum(const void *p, const __u32 bytes)
{
	const __u16 *w = p;
	__u32 sum = 0, i;

#pragma unroll
	for (i = 0; i < bytes / 2; i++)
		sum += w[i];
	return sum;
}

static __always_inline __u32 decap_allowed(struct tunnel *t)
{
	struct decap_prefix from = {.bits = 128, .addr = t->src};

	if (!bpf_map_lookup_elem(&decap_local, &t->dst))
		return PASS_NOT_LOCAL;
	if (decap_by_source && !bpf_map_lookup_elem(&decap_from, &from))
		return PASS_SOURCE;
	if (t->fragment)
		return PASS_FRAGMENT;
	if (t->options)
		return PASS_OPTIONS;
	return DECAP_FOUND;
}

static __always_inline __u32 decap_outer4(struct tunnel *t)
{
	struct iphdr *ip = decap_header(t, t->l2, sizeof(*ip));
	__u32 answer, len;

	if (!ip || ip->version != 4 || ip->ihl < 5)
		return PASS_OTHER;
	t->proto = ip->protocol;
	t->l4 = t->l2 + 4 * ip->ihl;
	if (ip->frag_off & bpf_htons(0x1fff) && t->proto == IPPROTO_UDP)
		return PASS_OTHER; /* the ports are in another fragment */
	if (!decap_is_tunnel(t))
		return PASS_OTHER;
	t->ecn = ip->tos & DECAP_ECN;
	t->fragment = ip->frag_off & bpf_htons(0x3fff);
	t->options = ip->ihl != 5;
	t->src = decap_addr4(ip->saddr);
	t->dst = decap_addr4(ip->daddr);
	answer = decap_allowed(t);
	if (answer != DECAP_FOUND)
		return answer;
	len = bpf_ntohs(ip->tot_len);
	t->end = t->l2 + len;
	if (len < sizeof(*ip) || t->end > t->len)
		return PASS_MALFORMED;
	if (csum_fold(decap_sum(ip, sizeof(*ip))) != 0xffff)
		return PASS_CHECKSUM;
	if (t->gue)
		t->pseudo = decap_sum(&ip->saddr, 8);
	return DECAP_FOUND;
}

/* Skips one extension header, to find out whether a tunnel's packet follows it. */
static __always_inline bool decap_extension(struct tunnel *t)
{
	struct {
		__u8 next;
		__u8 len;
		__be16 offset; /* of a fragment */
	} *ext;

	switch (t->proto) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_DSTOPTS:
	case IPPROTO_FRAGMENT:
		break;
	default:
		return true;
	}
	ext = decap_header(t, t->l4, 8);
	if (!ext)
		return false;
	t->fragment = t->proto == IPPROTO_FRAGMENT;
	t->options = true;
	t->proto = ext->next;
	if (t->fragment && ext->offset & bpf_htons(0xfff8) && t->proto == IPPROTO_UDP)
		return false; /* the ports are in another fragment */
	t->l4 += t->fragment ? 8 : 8 * (1 + ext->len);
	return true;
}

static __always_inline __u32 decap_outer6(struct tunnel *t)
{
	struct ipv6hdr *ip = decap_header(t, t->l2, sizeof(*ip));
	__u32 answer;

	if (!ip || ip->version != 6)
		return PASS_OTHER;
	t->proto = ip->nexthdr;
	t->l4 = t->l2 + sizeof(*ip);
	if (!decap_extension(t) || !decap_is_tunnel(t))
		return PASS_OTHER;
	t->ecn = (ip->flow_lbl[0] >> 4) & DECAP_ECN;
	t->src = *(struct decap_addr *)&ip->saddr;
	t->dst = *(struct decap_addr *)&ip->daddr;
	answer = decap_allowed(t);
	if (answer != DECAP_FOUND)
		return answer;
	t->end = t->l4 + bpf_ntohs(ip->payload_len);
	if (t->end > t->len)
		return PASS_MALFORMED;
	if (t->gue)
		t->pseudo = decap_sum(&ip->saddr, 32);
	return DECAP_FOUND;
}

static __always_inline __u32 decap_outer(struct tunnel *t)
{
	struct ethhdr *eth = decap_header(t, 0, sizeof(*eth));
	__be16 type, *tag;
	__u16 *mac;

	t->len = bpf_xdp_get_buff_len(t->ctx);
	t->l2 = sizeof(*eth);
	if (!eth)
		return PASS_OTHER;
	/* In promiscuous mode frames to other hosts come in too. They are left to the kernel. */
	mac = (__u16 *)eth->h_dest;
	if (mac[0] != decap_mac[0] || mac[1] != decap_mac[1] || mac[2] != decap_mac[2])
		return PASS_OTHER;
	type = eth->h_proto;
	if (type == bpf_htons(ETH_P_8021Q)) {
		tag = decap_header(t, sizeof(*eth), 4);
		if (!tag)
			return PASS_OTHER;
		t->l2 += 4;
		type = tag[1];
	}
	switch (type) {
	case bpf_htons(ETH_P_IP):
		return decap_outer4(t);
	case bpf_htons(ETH_P_IPV6):
		return decap_outer6(t);
	}
	return PASS_OTHER;
}

#endif
