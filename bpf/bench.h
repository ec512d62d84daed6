/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs of bench.bpf.c share: the table of frames and the counters. */
#ifndef CULVERT_BENCH_H
#define CULVERT_BENCH_H

#include <stdbool.h>

#include <linux/types.h>

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

/* One frame of the table. What follows the header is never written, so all frames share it. */
struct frame_template {
	__u32 frame_len; /* bytes of the whole frame */
	__u32 header_len; /* bytes of it that are stored here */
	__u8 header[];
};

/* A generator's progress on one CPU. Times are CLOCK_MONOTONIC nanoseconds. */
struct gen_state {
	__u64 quota; /* packets to send, set before a run */
	__u64 packets;
	__u64 bytes;
	__u64 first_ns;
	__u64 last_ns;
	__u64 gap_ns; /* from one packet to the next, 0 for none: set before a run */
	__u64 due_ns; /* when the next packet may go */
	__u32 next;   /* index of the next template */
	__u32 pad;
};

/* What a sink saw on one CPU. */
struct sink_count {
	__u64 packets;
	__u64 bytes;
	__u64 other; /* frames that are not the generator's */
};

/* The cost wrapper's state on one CPU. */
struct cost_state {
	__u64 home; /* address of the packet's first byte, 0 before the first run */
	__u64 data; /* the same, now */
	__u32 next; /* index of the next template */
	__u32 pad;
};

/* Set before loading: the number of templates and the longest header among them. */
const volatile __u32 template_count = 1;
const volatile __u32 header_max = 1;

/* Written by: internal/bench, before the first run. The longest header gives the value size. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct frame_template));
	__uint(max_entries, 1);
} templates SEC(".maps");

/* Moves the index on and returns the template it pointed at. */
static __always_inline const struct frame_template *template_take(__u32 *next)
{
	__u32 i = *next;

	*next = i + 1 < template_count ? i + 1 : 0;
	return bpf_map_lookup_elem(&templates, &i);
}

/* Writes the template's header over the packet's. Returns 0 or a negative error. */
static __always_inline int template_put(struct xdp_md *ctx, const struct frame_template *t)
{
	__u32 len = t->header_len;

	if (len == 0 || len > header_max)
		return -1;
	return bpf_xdp_store_bytes(ctx, 0, (void *)t->header, len);
}

#endif
