/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_FILTER_SYN_COOKIE_H
#define CULVERT_FILTER_SYN_COOKIE_H

#include "syn_options.h"

/* The low bits of the time stamp in a SYN-ACK with a cookie (cookie_init_timestamp). */
#define SYN_TS_NO_WSCALE 0xf
#define SYN_TS_SACK 0x10
#define SYN_TS_BITS 6

#define NSEC_PER_MSEC 1000000ULL

/* A SYN reduced to what the kernel's cookie helpers read: ports, sequence number, and MSS. */
struct syn_short {
	struct tcphdr tcp;
	__u8 mss[4];
} __attribute__((aligned(8)));

static __always_inline bool syn_shorten(struct xdp_md *ctx, const struct syn *syn,
					struct syn_short *s)
{
	const void *data = (void *)(long)ctx->data;
	const void *data_end = (void *)(long)ctx->data_end;
	const void *tcp = data + syn->l4;

	if (tcp + sizeof(struct tcphdr) > data_end)
		return false;
	copy(s, tcp, sizeof(struct tcphdr));
	((__u8 *)s)[12] = sizeof(*s) / 4 << 4;
	s->mss[0] = syn->opt.has_mss ? TCP_OPT_MSS : TCP_OPT_NOP;
	s->mss[1] = syn->opt.has_mss ? 4 : TCP_OPT_NOP;
	s->mss[2] = syn->opt.has_mss ? syn->opt.mss >> 8 : TCP_OPT_NOP;
	s->mss[3] = syn->opt.has_mss ? syn->opt.mss & 0xff : TCP_OPT_NOP;
	return true;
}

/* Makes a cookie that nf_synproxy accepts, as does a listener that expects cookies. */
static __always_inline bool syn_cookie_raw(struct xdp_md *ctx, struct syn *syn)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	void *ip = data + syn->l3;
	struct syn_short s;
	__s64 v;

	if (!syn_shorten(ctx, syn, &s))
		return false;
	if (syn->v6) {
		if (ip + sizeof(struct ipv6hdr) > data_end)
			return false;
		v = bpf_tcp_raw_gen_syncookie_ipv6(ip, &s.tcp, sizeof(s));
	} else {
		if (ip + sizeof(struct iphdr) > data_end)
			return false;
		v = bpf_tcp_raw_gen_syncookie_ipv4(ip, &s.tcp, sizeof(s));
	}
	syn->cookie = v;
	return v >= 0;
}

/*
 * Makes the time stamp of an answer. Its low bits have the options, because no state is kept. The rest is the kernel's
 * clock. It is never ahead of that clock, because later time stamps of the kernel must not be older.
 */
static __always_inline void syn_encode(struct syn *syn)
{
	__u32 now = bpf_ktime_get_ns() / NSEC_PER_MSEC;
	__u32 ts = now >> SYN_TS_BITS << SYN_TS_BITS;

	ts |= syn->opt.has_wscale ? syn->opt.wscale : SYN_TS_NO_WSCALE;
	if (syn->opt.has_sack)
		ts |= SYN_TS_SACK;
	if ((__s32)(ts - now) > 0)
		ts -= 1 << SYN_TS_BITS;
	syn->ts = bpf_htonl(ts);
}

#endif
