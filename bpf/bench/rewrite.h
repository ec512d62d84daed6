/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The least that has to be written into a SCION packet over IPv4. */
#ifndef CULVERT_BENCH_REWRITE_H
#define CULVERT_BENCH_REWRITE_H

#include <linux/types.h>

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "core/checksum.h"

#define AT(type, p) (*(type *)(p))
#define OUTER_LEN 42

/*
 * Moves the packet on by one hop field and replaces its outer header. Sums are as they stand in memory. l4_sum is less
 * the sum of the old outer addresses and ports. Returns 0 or -1.
 */
static __always_inline int rewrite(struct xdp_md *ctx, const volatile void *header, __u32 ip_sum,
				   __u32 l4_sum)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	void *scion = data + OUTER_LEN, *meta, *info, *hop;
	__u32 types, word, path, next, before, after, infos;
	__be16 ip_len, udp_len;
	__u16 check;
	__u64 sum;

	if (scion + 28 > end)
		return -1;
	/* hosts' addresses have 4 to 16 bytes each, by the lower two bits of their types */
	types = AT(__u8, scion + 9);
	meta = scion + 36 + (types >> 2 & 0xc) + (types << 2 & 0xc);
	if (meta + 4 > end)
		return -1;
	path = AT(__u32, meta);
	word = bpf_ntohl(path);
	infos = !!(word >> 12 & 0x3f) + !!(word >> 6 & 0x3f) + !!(word & 0x3f);
	info = meta + 4 + 8 * (word >> 30);
	hop = meta + 4 + 8 * infos + 12 * (word >> 24 & 0x3f);
	if (info + 8 > end || hop + 12 > end)
		return -1;
	next = bpf_htonl(word + (1 << 24));
	before = AT(__u32, info);
	after = before ^ (__u32)AT(__u16, hop + 6) << 16;
	udp_len = AT(__be16, data + 38);
	check = AT(__u16, data + 40);
	if (check) {
		sum = (__u64)l4_sum + (__u16)~check + (__u32)~path + next + (__u32)~before + after;
		check = ~csum_fold(sum);
		check = check ?: 0xffff;
	}
	AT(__u32, meta) = next;
	AT(__u32, info) = after;
	ip_len = AT(__be16, data + 16);
	AT(__u64, data) = AT(const volatile __u64, header);
	AT(__u64, data + 8) = AT(const volatile __u64, header + 8);
	AT(__u64, data + 16) = AT(const volatile __u64, header + 16);
	AT(__u64, data + 24) = AT(const volatile __u64, header + 24);
	AT(__u32, data + 32) = AT(const volatile __u32, header + 32);
	AT(__u16, data + 36) = AT(const volatile __u16, header + 36);
	AT(__be16, data + 16) = ip_len;
	AT(__u16, data + 24) = ~csum_fold((__u64)ip_sum + ip_len);
	AT(__be16, data + 38) = udp_len;
	AT(__u16, data + 40) = check;
	return 0;
}

#endif
