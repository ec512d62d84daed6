/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_DECAP_INNER_H
#define CULVERT_DECAP_INNER_H

#include "outer.h"

/*
 * Sets the inner ECN by the outer one (RFC 6040, figure 4), so that marks of congestion reach the receiver. False if
 * the packet has to be dropped.
 */
static __always_inline bool decap_ecn(__u8 outer, __u8 *inner)
{
	if (outer == DECAP_CE) {
		if (!*inner)
			return false;
		*inner = DECAP_CE;
	} else if (outer == DECAP_ECT1 && *inner && *inner != DECAP_CE) {
		*inner = DECAP_ECT1;
	}
	return true;
}

static __always_inline bool decap_is_vip(const struct decap_addr *dst)
{
	return !decap_by_vip || bpf_map_lookup_elem(&decap_vips, dst);
}

static __always_inline __u32 decap_inner4(struct tunnel *t)
{
	struct iphdr *ip = decap_header(t, t->inner, sizeof(*ip));
	struct decap_addr dst;
	__u8 ecn, now;
	__u32 len;

	if (!ip || ip->version != 4 || ip->ihl < 5)
		return PASS_MALFORMED;
	len = bpf_ntohs(ip->tot_len);
	if (len < 4 * ip->ihl || t->inner + len > t->end)
		return PASS_MALFORMED;
	dst = decap_addr4(ip->daddr);
	if (!decap_is_vip(&dst))
		return PASS_VIP;
	ecn = now = ip->tos & DECAP_ECN;
	if (!decap_ecn(t->ecn, &now))
		return DROP_ECN;
	if (now != ecn) {
		/* RFC 1624: the TOS is the second byte of its word. */
		ip->check = ~csum_fold((__u16)~ip->check + (__u16)~bpf_htons(ecn) + bpf_htons(now));
		ip->tos ^= ecn ^ now;
	}
	return DECAP_FOUND;
}

static __always_inline __u32 decap_inner6(struct tunnel *t)
{
	struct ipv6hdr *ip = decap_header(t, t->inner, sizeof(*ip));
	struct decap_addr dst;
	__u8 ecn, now;

	if (!ip || ip->version != 6 || t->inner + sizeof(*ip) + bpf_ntohs(ip->payload_len) > t->end)
		return PASS_MALFORMED;
	dst = *(struct decap_addr *)&ip->daddr;
	if (!decap_is_vip(&dst))
		return PASS_VIP;
	ecn = now = (ip->flow_lbl[0] >> 4) & DECAP_ECN;
	if (!decap_ecn(t->ecn, &now))
		return DROP_ECN;
	ip->flow_lbl[0] ^= (ecn ^ now) << 4;
	return DECAP_FOUND;
}

static __always_inline __u32 decap_inner(struct tunnel *t)
{
	return t->proto == IPPROTO_IPV6 ? decap_inner6(t) : decap_inner4(t);
}

/*
 * Moves the Ethernet header in front of the inner packet, and makes the frame begin there. Padding behind the inner
 * packet is kept, because the kernel always cuts it off.
 */
static __always_inline bool decap_strip(struct tunnel *t, const __u32 l2)
{
	void *from = decap_header(t, 0, l2);
	void *to = decap_header(t, t->inner - l2, l2);
	__u32 i;

	if (!from || !to)
		return false;
	/* They do not overlap: an IP header lies between. */
#pragma unroll
	for (i = 0; i < l2 - 2; i += 2)
		*(__u16 *)(to + i) = *(__u16 *)(from + i);
	*(__be16 *)(to + l2 - 2) =
		t->proto == IPPROTO_IPV6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	return !bpf_xdp_adjust_head(t->ctx, t->inner - l2);
}

#endif
