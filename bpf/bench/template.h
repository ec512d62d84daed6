/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The table of frames from which generator and cost wrapper take packets. */
#ifndef CULVERT_BENCH_TEMPLATE_H
#define CULVERT_BENCH_TEMPLATE_H

#include "bench.h"
#include "core/compiler.h"

/* One frame of the table. What follows the header is never written, so all frames share it. */
struct frame_template {
	__u32 frame_len; /* length of the whole frame, bytes */
	__u32 header_len; /* length of the part that is stored here, bytes */
	/* for stamps only */
	__u32 flow;
	__u32 seq; /* of the next packet made from this frame */
	__u32 seq_step; /* how many frames of the table have this flow */
	__u32 stamp_sum; /* what the 16-bit words of a stamp have to add up to */
	__u8 header[];
};

/* Set before loading: the number of templates and the longest header among them. */
const volatile __u32 template_count = 1;
const volatile __u32 header_max = 1;
/* Set before loading: whether all headers are header_max long. */
const volatile bool one_length = false;

/*
 * Written by: internal/bench, before the first run; the generator writes the sequence numbers. The value size depends
 * on the longest header.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct frame_template));
	__uint(max_entries, 1);
} templates SEC(".maps");

/* Advances the index, and returns the template that it pointed to. */
static __always_inline struct frame_template *template_take(__u32 *next)
{
	__u32 i = *next;

	*next = i + 1 < template_count ? i + 1 : 0;
	return bpf_map_lookup_elem(&templates, &i);
}

/* The longest header that is copied without a call, bytes. */
#define DIRECT_MAX 256

/*
 * Copies header_max bytes, 14 or more, in words of 8. The last two words may overlap. The verifier knows header_max and
 * removes the steps beyond it, so nothing is compared at run time. Returns 0 or -1.
 */
static __always_inline int template_copy(struct xdp_md *ctx, const struct frame_template *t)
{
	void *end = (void *)(long)ctx->data_end;
	void *data = (void *)(long)ctx->data;
	const __u32 len = header_max;
	__u32 i;

	if (data + len > end)
		return -1;
#pragma unroll
	for (i = 0; i + 8 <= DIRECT_MAX; i += 8)
		if (i + 8 <= len)
			*(__u64 *)(data + i) = *(const __u64 *)(t->header + i);
	if (len % 8)
		*(__u64 *)(data + len - 8) = *(const __u64 *)(t->header + len - 8);
	return 0;
}

/* Writes the template's header over the packet's. Returns 0 or a negative error. */
static __always_inline int template_put(struct xdp_md *ctx, const struct frame_template *t)
{
	__s64 len = t->header_len;

	if (one_length && header_max <= DIRECT_MAX)
		return template_copy(ctx, t);
	/*
	 * Two signed comparisons. The barriers keep clang from making one unsigned comparison of them. The verifier of
	 * Linux 6.1 learns no bounds from that, nor from len == 0.
	 */
	barrier_var(len);
	if (len < 1)
		return -1;
	barrier_var(len);
	if (len > header_max)
		return -1;
	barrier_var(len);
	return bpf_xdp_store_bytes(ctx, 0, (void *)t->header, len);
}

#endif
