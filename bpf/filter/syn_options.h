/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_FILTER_SYN_OPTIONS_H
#define CULVERT_FILTER_SYN_OPTIONS_H

#include "syn_check.h"

/* Kinds of TCP options. */
#define TCP_OPT_END 0
#define TCP_OPT_NOP 1
#define TCP_OPT_MSS 2
#define TCP_OPT_WSCALE 3
#define TCP_OPT_SACK_OK 4
#define TCP_OPT_TS 8
#define TCP_OPT_MD5 19
#define TCP_OPT_AO 29
#define TCP_WSCALE_MAX 14 /* RFC 7323, 2.3 */

/* A TCP header, which is summed by words. */
union syn_header {
	__u8 b[64];
	__u32 w[16];
};

/*
 * The offset up to which the options have been read. It is in memory that the verifier does not track, because it would
 * try every combination of options.
 */
#define SYN_AT (*(volatile __u32 *)&opt->at)
#define SYN_OPT(n) (tcp->b[(at + (n)) & 63])

/*
 * Reads the options that the answer depends on. It stops where they are inconsistent, as tcp_parse_options does: the
 * kernel answers such SYNs too. Returns 0 for a signed SYN (MD5, AO). It is a global function, which the verifier
 * checks once.
 */
__noinline int syn_options(const union syn_header *tcp, struct syn_options *opt)
{
	__u32 at, size, i;

	if (!tcp || !opt)
		return 0;
	SYN_AT = sizeof(struct tcphdr);
	for (i = 0; i < TCP_HEADER_MAX - sizeof(struct tcphdr); i++) {
		at = SYN_AT;
		if (at >= opt->header || SYN_OPT(0) == TCP_OPT_END)
			break;
		if (SYN_OPT(0) == TCP_OPT_NOP) {
			SYN_AT = at + 1;
			continue;
		}
		size = SYN_OPT(1);
		if (at + 1 >= opt->header || size < 2 || at + size > opt->header)
			break;
		SYN_AT = at + size;
		switch (SYN_OPT(0)) {
		case TCP_OPT_MSS:
			if (size != 4)
				break;
			opt->has_mss = true;
			opt->mss = (__u16)SYN_OPT(2) << 8 | SYN_OPT(3);
			break;
		case TCP_OPT_WSCALE:
			if (size != 3)
				break;
			opt->has_wscale = true;
			opt->wscale = SYN_OPT(2) > TCP_WSCALE_MAX ? TCP_WSCALE_MAX : SYN_OPT(2);
			break;
		case TCP_OPT_SACK_OK:
			if (size == 2)
				opt->has_sack = true;
			break;
		case TCP_OPT_TS:
			if (size != 10)
				break;
			opt->has_ts = true;
			opt->ts = SYN_OPT(2) | SYN_OPT(3) << 8 | SYN_OPT(4) << 16 |
				  (__u32)SYN_OPT(5) << 24;
			break;
		case TCP_OPT_MD5:
		case TCP_OPT_AO:
			return 0;
		}
	}
	return 1;
}

/* The sum of the pseudo header (RFC 9293, 3.1; RFC 8200, 8.1). */
static __always_inline __u64 syn_pseudo(const void *ip, bool v6, __u32 tcp_len)
{
	__u64 sum = bpf_htonl(tcp_len) + (__u64)bpf_htonl(IPPROTO_TCP);
	__u32 i;

	if (!v6)
		return sum + LOAD32(ip + 12) + LOAD32(ip + 16);
#pragma unroll
	for (i = 8; i < sizeof(struct ipv6hdr); i += 4)
		sum += LOAD32(ip + i);
	return sum;
}

/*
 * Reads the options of a SYN. False if its checksum is wrong, or it is signed or has data. A SYN with data is left to
 * the kernel: it may have a cookie of TCP Fast Open.
 */
static __always_inline bool syn_reads(struct xdp_md *ctx, struct syn *syn)
{
	const void *data = (void *)(long)ctx->data;
	const void *data_end = (void *)(long)ctx->data_end;
	const void *ip = data + syn->l3;
	union syn_header tcp = {};
	__u32 len = syn->header, i;
	__u64 sum;

	if (len != syn->tcp_len)
		return false;
	/* The mask changes nothing. It shows the verifier that len is not 0 and fits. */
	barrier_var(len);
	len = ((len - 1) & (sizeof(tcp) - 1)) + 1;
	if (bpf_xdp_load_bytes(ctx, syn->l4, &tcp, len))
		return false;
	if (ip + (syn->v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) > data_end)
		return false;
	sum = syn_pseudo(ip, syn->v6, len);
#pragma unroll
	for (i = 0; i < TCP_HEADER_MAX / 4; i++)
		sum += tcp.w[i];
	if (csum_fold(sum) != 0xffff)
		return false;
	syn->opt.header = len;
	return syn_options(&tcp, &syn->opt);
}

#endif
