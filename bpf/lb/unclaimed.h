/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_UNCLAIMED_H
#define CULVERT_LB_UNCLAIMED_H

#include "icmp_ptb.h"
#include "fib.h"
#include "vlan.h"

/*
 * Packets to the address of a VIP that belong to no VIP: other ports, other protocols, headers that are not read. No
 * interface of this host has the address, so the kernel would forward such a packet, usually back to where it came
 * from, and it would loop until its TTL is used up. The stage answers it instead, as a host does that has the address
 * but nothing on the port. A packet that the kernel would not forward is left to the kernel: the address may be this
 * host's too, or have a blackhole route.
 */
enum lb_unclaimed {
	LB_UNCLAIMED_REJECT,
	LB_UNCLAIMED_DROP,
	LB_UNCLAIMED_PASS,
};

/* enum lb_unclaimed, fixed at load time. Shared with lbplane.Unclaimed. */
const volatile __u8 lb_unclaimed;

#define ICMP4_BAD_PROTOCOL 2 /* codes of ICMP4_UNREACHABLE */
#define ICMP4_BAD_PORT 3
#define ICMP6_BAD_PORT 4 /* code of ICMP6_UNREACHABLE */
#define ICMP6_BAD_HEADER 1 /* code of ICMP6_PARAMETER */
#define IP6_NEXT_HEADER 6 /* its offset in the header */

/* IPv6 next headers: headers that others follow, and protocols that get no answer. */
#define IP6_AUTHENTICATION 51
#define IP6_NOTHING 59
#define IP6_MOBILITY 135
#define IP6_HIP 139
#define IP6_SHIM6 140

/* Whether the address has a VIP. */
static __always_inline bool lb_vip_of_addr(struct lb_vip_key *key)
{
	key->proto = IPPROTO_TCP;
	if (lb_vip_any_port(key))
		return true;
	key->proto = IPPROTO_UDP;
	return lb_vip_any_port(key);
}

/*
 * The reason for an IPv4 packet. No error answers ICMP, and none answers a fragment other than the first (RFC 1122,
 * 3.2.2).
 */
static __always_inline int lb_unclaimed_reason4(const void *ip)
{
	if (LOAD8(ip) != 0x45 || LOAD16(ip + 6) & bpf_htons(0x1fff) ||
	    LOAD8(ip + 9) == IPPROTO_ICMP)
		return DROP_LB_UNCLAIMED;
	return XMIT_LB_UNREACHABLE;
}

/* As above, for IPv6 (RFC 4443, 2.4). Neighbor discovery is left to the kernel, which may answer for another host. */
static __always_inline int lb_unclaimed_reason6(const void *ip, const void *data_end)
{
	switch (LOAD8(ip + 6)) {
	case IPPROTO_ICMPV6:
		/* An empty payload has no type. What is read there would be padding. */
		if (!LOAD16(ip + 4) || ip + 41 > data_end ||
		    (LOAD8(ip + 40) >= 133 && LOAD8(ip + 40) <= 137))
			return REASON_NONE;
		return DROP_LB_UNCLAIMED;
	case IPPROTO_FRAGMENT:
		/* A shorter payload has no whole fragment header. What is read there would be padding. */
		if (bpf_ntohs(LOAD16(ip + 4)) < 8 || ip + 48 > data_end ||
		    LOAD16(ip + 42) & bpf_htons(0xfff8) ||
		    (LOAD8(ip + 40) != IPPROTO_TCP && LOAD8(ip + 40) != IPPROTO_UDP))
			return DROP_LB_UNCLAIMED;
		return XMIT_LB_UNREACHABLE;
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_DSTOPTS:
	case IP6_AUTHENTICATION:
	case IP6_NOTHING:
	case IP6_MOBILITY:
	case IP6_HIP:
	case IP6_SHIM6:
		return DROP_LB_UNCLAIMED;
	}
	return XMIT_LB_UNREACHABLE;
}

/*
 * Decides on a packet whose IP header is at offset l3. For the kernel it has come in by the device dev. Returns
 * REASON_NONE if it is not to the address of a VIP, or if the kernel would not forward it, and XMIT_LB_UNREACHABLE if
 * it is to be answered. The packet is unchanged.
 */
__noinline int lb_unclaimed_reason(struct xdp_md *ctx, __u32 l3, __u32 dev)
{
	struct lb_vip_key key __attribute__((aligned(8))) = {};
	const void *ip, *data_end;
	bool v4;
	int reason;

	if (!lb_on || lb_unclaimed == LB_UNCLAIMED_PASS)
		return REASON_NONE;
	data_end = (void *)(long)ctx->data_end;
	ip = (void *)(long)ctx->data + (l3 == ETH_HLEN ? ETH_HLEN : ETH_HLEN + VLAN_HLEN);
	barrier_var(ip);
	if (ip + 20 > data_end)
		return REASON_NONE;
	v4 = LOAD8(ip) >> 4 == 4;
	if (v4) {
		key.addr.w[2] = IP4_MAPPED;
		key.addr.w[3] = LOAD32(ip + 16);
		reason = lb_unclaimed_reason4(ip);
	} else {
		if (ip + 40 > data_end)
			return REASON_NONE;
		copy(&key.addr, ip + 24, 16);
		if (!(key.addr.w[0] | key.addr.w[1]) && key.addr.w[2] == IP4_MAPPED)
			return REASON_NONE; /* no VIP has such an address */
		reason = lb_unclaimed_reason6(ip, data_end);
	}
	if (!reason || !lb_vip_of_addr(&key) || !lb_kernel_forwards(ctx, ip, data_end, v4, dev))
		return REASON_NONE;
	if (lb_unclaimed == LB_UNCLAIMED_DROP || !lb_icmp_may_answer(ip, v4))
		return DROP_LB_UNCLAIMED;
	return reason;
}

/*
 * A step of lb_sum_any. len is a sum of powers of two. If step is one of them, this adds the step bytes that follow
 * those of the larger powers.
 */
static __always_inline bool lb_sum_step(void *at, const void *data_end, __u32 len, const __u32 step,
					__u64 *sum)
{
	if (!(len & step))
		return true;
	at += len & ~(2 * step - 1) & 0x7ff;
	if (at + step > data_end)
		return false;
	if (step == 1)
		*sum += bpf_htons(LOAD8(at) << 8);
	else if (step == 2)
		*sum += LOAD16(at);
	else
		*sum += lb_sum(at, step);
	return true;
}

/* As lb_sum, for any length below 2048. False if the first buffer is shorter. */
static __always_inline bool lb_sum_any(void *at, const void *data_end, __u32 len, __u64 *sum)
{
	__u32 i;

#pragma unroll
	for (i = 0; i < 11; i++)
		if (!lb_sum_step(at, data_end, len, 1024 >> i, sum))
			return false;
	return true;
}

/* Type and code of the answer to a packet of that protocol, and its second word. */
static __always_inline __u32 lb_unreachable_head(bool v4, __u8 proto, __u32 *word)
{
	bool port = proto == IPPROTO_TCP || proto == IPPROTO_UDP;

	*word = 0;
	if (v4)
		return ICMP4_UNREACHABLE << 24 | (port ? ICMP4_BAD_PORT : ICMP4_BAD_PROTOCOL) << 16;
	if (port || proto == IPPROTO_FRAGMENT)
		return ICMP6_UNREACHABLE << 24 | ICMP6_BAD_PORT << 16;
	*word = IP6_NEXT_HEADER;
	return ICMP6_PARAMETER << 24 | ICMP6_BAD_HEADER << 16;
}

/*
 * Turns a packet of ip_len bytes into its answer. Returns 0 if the packet is to be dropped, because it may not be
 * answered.
 */
__noinline int lb_unreachable(struct xdp_md *ctx, __u32 l3, __u32 ip_len)
{
	struct lb_icmp_reply t = {};
	void *data, *data_end, *ip;
	__u32 quote, head, word, most;
	bool v4, tagged;
	__u64 sum = 0;

	if (!lb_on || lb_unclaimed != LB_UNCLAIMED_REJECT)
		return 0;
	tagged = l3 != ETH_HLEN;
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	ip = data + (tagged ? ETH_HLEN + VLAN_HLEN : ETH_HLEN);
	barrier_var(ip);
	if (ip + 20 > data_end || from_group(data))
		return 0;
	v4 = LOAD8(ip) >> 4 == 4;
	head = lb_unreachable_head(v4, LOAD8(ip + (v4 ? 9 : 6)), &word);
	most = v4 ? LB_QUOTE4 : LB_QUOTE6;
	quote = ip_len < most ? ip_len : most;
	if (!lb_icmp_reply_begin(data, ip, data_end, v4, &t) ||
	    !limit_allows(ctx, XMIT_LB_UNREACHABLE))
		return 0;
	if (bpf_xdp_adjust_tail(ctx, (int)(l3 + quote) - (int)bpf_xdp_get_buff_len(ctx)))
		return 0;
	if (bpf_xdp_adjust_head(ctx, -((v4 ? 20 : 40) + LB_ICMP_LEN)))
		return 0;
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	if (data + ETH_HLEN + VLAN_HLEN > data_end)
		return 0; /* never, as in the next two tests: another IP header follows */
	ip = lb_icmp_reply_eth(data, &t, tagged);
	quote += LB_ICMP_LEN;
	if (v4) {
		if (ip + 20 + LB_ICMP_LEN > data_end)
			return 0;
		STORE16(ip - 2, bpf_htons(ETH_P_IP));
		lb_icmp_reply_ipv4(ip, &t, quote, head, word);
		ip += 20;
	} else {
		if (ip + 40 + LB_ICMP_LEN > data_end)
			return 0;
		STORE16(ip - 2, bpf_htons(ETH_P_IPV6));
		lb_icmp_reply_ipv6(ip, &t, quote, head, word);
		sum = lb_icmp_reply_pseudo(&t, quote);
		ip += 40;
	}
	if (!lb_sum_any(ip, data_end, quote, &sum))
		return 0; /* the first buffer ends in the quote */
	STORE16(ip + 2, ~csum_fold(sum));
	return 1;
}

/*
 * The stage in front of the IP router, for packets that no other stage has claimed. The head of this file tells which
 * ones it takes.
 */
static __always_inline int lb_unclaimed_stage(struct xdp_md *ctx, struct packet *pkt)
{
	struct ip_addr dst __attribute__((aligned(8)));
	__u32 dev;
	int reason;

	if (!lb_on || lb_unclaimed == LB_UNCLAIMED_PASS || !pkt->port || !pkt->ip ||
	    pkt->no_fwd_reason == NO_FWD_MALFORMED)
		return REASON_NONE;
	if (!lb_dst(pkt, &dst) || !lb_vip_maybe(&dst))
		return REASON_NONE;
	dev = pkt->vlan ? lb_vlan_dev(pkt) : pkt->port->dev;
	if (!dev)
		return REASON_NONE; /* the kernel has no such VLAN */
	reason = lb_unclaimed_reason(ctx, pkt->l3, dev);
	if (reason <= REASON_NONE)
		return REASON_NONE;
	if (reason == XMIT_LB_UNREACHABLE && lb_unreachable(ctx, pkt->l3, pkt->ip_len))
		return XMIT_LB_UNREACHABLE;
	return DROP_LB_UNCLAIMED;
}

/*
 * Returns the final reason of a packet to a VIP that goes to no backend. A packet that the kernel would forward is
 * dropped.
 */
static __always_inline int lb_unserved(struct xdp_md *ctx, struct packet *pkt, int reason)
{
	__u32 dev = pkt->vlan ? lb_vlan_dev(pkt) : pkt->port->dev;

	if (lb_unclaimed == LB_UNCLAIMED_PASS || !dev ||
	    lb_unclaimed_reason(ctx, pkt->l3, dev) <= REASON_NONE)
		return reason;
	return reason == PASS_LB_EMPTY ? DROP_LB_EMPTY : DROP_LB_UNCLAIMED;
}

#endif
