/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_ICMP_PTB_H
#define CULVERT_LB_ICMP_PTB_H

#include "icmp.h"

/*
 * ICMP "packet too big". If a packet does not fit with its outer headers, the VIP tells the client the longest packet
 * that does (RFC 1191, RFC 8201). The quote is so long that the ICMP packet has 576 bytes (RFC 1812, 4.3.2.3), or the
 * ICMPv6 packet 1280 (RFC 4443, 2.4).
 */
#define LB_QUOTE4 (576 - 20 - LB_ICMP_LEN)
#define LB_QUOTE6 (1280 - 40 - LB_ICMP_LEN)

/* The minimum MTU of IPv6. No sender can be asked for shorter packets (RFC 8200, 5; RFC 8201, 4). */
#define LB_IP6_MTU 1280

/* The longest piece that bpf_csum_diff takes. */
#define LB_SUM_STEP 512

/* The fields of the packet that go into the headers of its answer. */
struct lb_icmp_reply {
	__u64 src[2]; /* IP addresses as they stand in the packet */
	__u64 dst[2];
	__u16 mac[6];
	__u16 tag[2];
};

static __always_inline __u64 lb_sum(void *at, const __u32 len)
{
	__u64 sum = 0;
	__u32 i;

#pragma unroll
	for (i = 0; i < len; i += LB_SUM_STEP)
		sum += (__u32)bpf_csum_diff(NULL, 0, at + i,
					    len - i < LB_SUM_STEP ? len - i : LB_SUM_STEP, 0);
	return sum;
}

/* Writes the Ethernet header of an answer. Returns where its IP header is. */
static __always_inline void *lb_icmp_reply_eth(void *data, const struct lb_icmp_reply *t,
					       bool tagged)
{
	__u32 i;

#pragma unroll
	for (i = 0; i < 3; i++) {
		STORE16(data + 2 * i, t->mac[3 + i]);
		STORE16(data + 6 + 2 * i, t->mac[i]);
	}
	if (tagged) {
		STORE16(data + 12, t->tag[0]);
		STORE16(data + 14, t->tag[1]);
	}
	return data + (tagged ? ETH_HLEN + VLAN_HLEN : ETH_HLEN);
}

/*
 * Writes the headers in front of the quote. len is the length of the ICMP header and the quote. The checksum of ICMP is
 * left 0.
 */
static __always_inline void lb_icmp_reply_ipv4(void *ip, const struct lb_icmp_reply *t, __u32 len,
					       __u32 head, __u32 word)
{
	void *icmp = ip + 20;

	/* RFC 1812, 4.3.2.5: precedence of internetwork control */
	STORE32(ip, bpf_htonl(0x45c00000 | (20 + len)));
	STORE32(ip + 4, bpf_htonl(0x4000));
	STORE32(ip + 8, bpf_htonl(LB_TTL << 24 | IPPROTO_ICMP << 16));
	STORE32(ip + 12, (__u32)t->dst[0]);
	STORE32(ip + 16, (__u32)t->src[0]);
	STORE16(ip + 10, ~csum_fold(ipv4_sum(ip)));
	STORE32(icmp, bpf_htonl(head));
	STORE32(icmp + 4, bpf_htonl(word));
}

static __always_inline void lb_icmp_reply_ipv6(void *ip, const struct lb_icmp_reply *t, __u32 len,
					       __u32 head, __u32 word)
{
	void *icmp = ip + 40;

	STORE32(ip, bpf_htonl(0x60000000));
	STORE32(ip + 4, bpf_htonl(len << 16 | IPPROTO_ICMPV6 << 8 | LB_TTL));
	STORE64(ip + 8, t->dst[0]);
	STORE64(ip + 16, t->dst[1]);
	STORE64(ip + 24, t->src[0]);
	STORE64(ip + 32, t->src[1]);
	STORE32(icmp, bpf_htonl(head));
	STORE32(icmp + 4, bpf_htonl(word));
}

/* The sum of ICMPv6's pseudo header (RFC 8200, 8.1). */
static __always_inline __u64 lb_icmp_reply_pseudo(const struct lb_icmp_reply *t, __u32 len)
{
	__u64 sum = (__u64)bpf_htonl(len) + bpf_htonl(IPPROTO_ICMPV6);

	sum += (__u32)t->src[0] + (t->src[0] >> 32) + (__u32)t->src[1] + (t->src[1] >> 32);
	sum += (__u32)t->dst[0] + (t->dst[0] >> 32) + (__u32)t->dst[1] + (t->dst[1] >> 32);
	return sum;
}

/* Reads what an answer needs from the packet. False if the sender of the packet may get no answer. */
static __always_inline bool lb_icmp_reply_begin(void *data, const void *ip, void *data_end, bool v4,
						struct lb_icmp_reply *t)
{
	__u32 i;

	if (ip + (v4 ? 20 : 40) > data_end || !lb_icmp_may_answer(ip, v4))
		return false;
#pragma unroll
	for (i = 0; i < 6; i++)
		t->mac[i] = LOAD16(data + 2 * i);
	t->tag[0] = LOAD16(data + 12);
	t->tag[1] = LOAD16(data + 14);
	if (v4) {
		t->src[0] = LOAD32(ip + 12);
		t->dst[0] = LOAD32(ip + 16);
		return true;
	}
	/* Never true: the verifier of Linux 6.1 does not connect the two tests of v4. */
	barrier_var(ip);
	if (ip + 40 > data_end)
		return false;
	t->src[0] = LOAD64(ip + 8);
	t->src[1] = LOAD64(ip + 16);
	t->dst[0] = LOAD64(ip + 24);
	t->dst[1] = LOAD64(ip + 32);
	return true;
}

/* Turns the packet into the answer, which announces p->mtu. Returns 0 if the packet may not be answered. */
__noinline int lb_icmp_ptb(struct xdp_md *ctx, struct lb_packet *p)
{
	struct lb_icmp_reply t = {};
	__u32 mtu;
	void *data, *data_end, *ip;
	bool v4, tagged;
	__u64 sum;
	int cut;

	if (!lb_on || !p)
		return 0;
	lb_event(p->flow.vip, LB_EVENT_TOO_BIG);
	mtu = p->mtu;
	v4 = p->ip == 4;
	tagged = p->l3 != ETH_HLEN;
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	if (data + ETH_HLEN > data_end || from_group(data))
		return 0;
	if (p->quiet || p->ip_len < (v4 ? LB_QUOTE4 : LB_IP6_MTU + 1))
		return 0;
	/*
	 * DF does not matter: no router behind can fragment the packet, and senders without DF heed the answer too (RFC
	 * 1191, 3).
	 */
	if (!lb_icmp_reply_begin(data, lb_ip(ctx, p), data_end, v4, &t) ||
	    !limit_allows(ctx, XMIT_LB_TOO_BIG))
		return 0;
	if (!v4 && mtu < LB_IP6_MTU)
		mtu = LB_IP6_MTU;
	cut = p->l3 + (v4 ? LB_QUOTE4 : LB_QUOTE6) - (int)bpf_xdp_get_buff_len(ctx);
	if (cut && bpf_xdp_adjust_tail(ctx, cut))
		return 0;
	if (bpf_xdp_adjust_head(ctx, -((v4 ? 20 : 40) + LB_ICMP_LEN)))
		return 0;
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	if (data + ETH_HLEN + VLAN_HLEN > data_end)
		return 0; /* never */
	ip = lb_icmp_reply_eth(data, &t, tagged);
	if (v4) {
		STORE16(ip - 2, bpf_htons(ETH_P_IP));
		if (ip + 20 + LB_ICMP_LEN + LB_QUOTE4 > data_end)
			return 0; /* the first buffer ends in the quote */
		lb_icmp_reply_ipv4(ip, &t, LB_ICMP_LEN + LB_QUOTE4,
				   ICMP4_UNREACHABLE << 24 | ICMP4_TOO_BIG << 16, mtu);
		sum = lb_sum(ip + 20, LB_ICMP_LEN + LB_QUOTE4);
		STORE16(ip + 22, ~csum_fold(sum));
	} else {
		STORE16(ip - 2, bpf_htons(ETH_P_IPV6));
		if (ip + 40 + LB_ICMP_LEN + LB_QUOTE6 > data_end)
			return 0;
		lb_icmp_reply_ipv6(ip, &t, LB_ICMP_LEN + LB_QUOTE6, ICMP6_TOO_BIG << 24, mtu);
		sum = lb_icmp_reply_pseudo(&t, LB_ICMP_LEN + LB_QUOTE6) +
		      lb_sum(ip + 40, LB_ICMP_LEN + LB_QUOTE6);
		STORE16(ip + 42, ~csum_fold(sum));
	}
	return 1;
}

#endif
