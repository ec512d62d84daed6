/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A histogram of delays in nanoseconds. Below 2^DELAY_BITS each delay has a bucket. Above, each power of two has
 * 2^DELAY_BITS buckets, so a bucket is never wider than 1/64 of the delays in it.
 */
#ifndef CULVERT_BENCH_DELAY_H
#define CULVERT_BENCH_DELAY_H

#include "bench.h"
#include "stamp.h"
#include "core/compiler.h"

#define DELAY_BITS 6
#define DELAY_BUCKETS ((STAMP_TIME_BITS - DELAY_BITS + 1) << DELAY_BITS)

/* The delays on one CPU. */
struct delay_count {
	__u64 longest; /* ns */
	__u64 packets[DELAY_BUCKETS];
};

/* Written by: the sink; internal/bench resets it between runs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct delay_count);
	__uint(max_entries, 1);
} delays SEC(".maps");

/* The bucket of a delay ns, which is below 2^STAMP_TIME_BITS. */
static __always_inline __u32 delay_bucket(__u64 ns)
{
	__u32 shift = 0;
	__u64 v = ns >> DELAY_BITS;

	/* shift becomes the number of significant bits of v */
	if (v >> 16) {
		shift += 16;
		v >>= 16;
	}
	if (v >> 8) {
		shift += 8;
		v >>= 8;
	}
	if (v >> 4) {
		shift += 4;
		v >>= 4;
	}
	if (v >> 2) {
		shift += 2;
		v >>= 2;
	}
	if (v >> 1) {
		shift += 1;
		v >>= 1;
	}
	shift += v;
	if (shift < 2)
		return ns;
	return ((shift - 1) << DELAY_BITS) + (__u32)(ns >> (shift - 1));
}

/* Counts the delay since the time in a stamp. */
static __always_inline void delay_note(struct delay_count *d, __u64 since)
{
	__u64 ns = (bpf_ktime_get_ns() - since) & STAMP_TIME_MASK;
	__u32 i;

	/* The clocks of two CPUs may differ a little. A negative delay counts as 0. */
	if (ns > STAMP_TIME_MASK / 2)
		ns = 0;
	if (ns > d->longest)
		d->longest = ns;
	i = delay_bucket(ns);
	barrier_var(i);
	if (i < DELAY_BUCKETS)
		d->packets[i]++;
}

#endif
