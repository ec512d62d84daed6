/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LIMIT_H
#define CULVERT_LIMIT_H

#include "reason.h"

/*
 * How fast each reason may use the slow path. Generic cell rate algorithm: one time stamp a
 * reason, no division. CPUs race for it; what a race lets through too much is at most a packet for
 * each CPU.
 */
struct limit {
	__u64 interval; /* ns from one packet to the next; 0: no limit */
	__u64 burst; /* ns by which packets may come early */
	__u64 due; /* when the next packet is due, ns */
};

/* By reason. Writer of interval and burst: datapath; of due: the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, REASON_MAX);
	__type(key, __u32);
	__type(value, struct limit);
} limits SEC(".maps");

/* Charges a packet, unless it is over the rate. */
static __always_inline bool over_limit(struct limit *l)
{
	__u64 now, due;

	if (!l->interval)
		return false;
	now = bpf_ktime_get_coarse_ns();
	due = *(volatile __u64 *)&l->due;
	if (due < now)
		due = now;
	if (due - now > l->burst)
		return true;
	*(volatile __u64 *)&l->due = due + l->interval;
	return false;
}

static __always_inline bool limited(__u32 reason)
{
	struct limit *l = bpf_map_lookup_elem(&limits, &reason);

	return l && over_limit(l);
}

/* The reason that a packet leaves for: another one when a punt has used up its rate. */
static __always_inline __u32 limit(__u32 reason)
{
	if (reason >= REASON_PUNT && reason < REASON_DROP && limited(reason))
		reason += REASON_LIMITED;
	return reason;
}

#endif
