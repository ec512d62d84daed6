// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "stages.h"

#include "flow_insert.h"

/*
 * Frees expired entries of the flow table before their times wrap and they look alive again. User space runs it on one
 * range of the table after another. It is a program because it takes locks: a process may be killed while it holds one,
 * a program is not. It is an XDP program (BPF_PROG_TEST_RUN), because other types may not read the clock that the stage
 * reads.
 */

/*
 * The buckets to work on. User space passes them as the packet, which has to be as long as an Ethernet header. Shared
 * with gcRange of internal/lb/lbplane/gc.go.
 */
struct lb_gc_range {
	__u32 first;
	__u32 count;
	__u32 pad[2];
};

struct lb_gc_state {
	__u32 first;
	__u32 freed;
};

/*
 * Whether an entry has expired. It gets LB_SKEW ticks more than in the stage, because lb_flow_touch writes without the
 * lock. When these are over no program is still about to write to the entry, unless it was halted for more than a
 * minute. Such a program sends its packet to the right backend. But it writes the time of a way that is free or another
 * flow's, which then stays longer. The next packet of its own flow goes by the ring, and the flow is inserted again.
 */
static __always_inline bool lb_gc_expired(const struct lb_bucket *b, __u32 way, __u16 now)
{
	__u16 time = *(volatile const __u16 *)&b->time[way];

	return *(volatile const __u16 *)&b->tag[way] &&
	       lb_age(time, now) >= (__u32)lb_idle[time & 3] + LB_SKEW;
}

/*
 * Frees an entry of a locked bucket. It clears the backend too, so that a program that has found the entry before does
 * not reassign it: the flow might get two entries.
 */
static __always_inline void lb_gc_free(struct lb_bucket *b, __u32 way)
{
	struct lb_entry *e = &b->entry[way];

	seq_write_begin(&e->seq);
	*(volatile __u32 *)&e->backend = 0;
	*(volatile __u16 *)&b->tag[way] = 0;
	seq_write_end(&e->seq);
}

/*
 * Frees the expired entries of a bucket and returns how many. Most buckets have none and are not locked. A bucket
 * that is locked by another program is skipped: its next turn comes long before times wrap.
 */
__noinline int lb_gc_bucket(__u32 i)
{
	struct lb_bucket *b = bpf_map_lookup_elem(&lb_flows, &i);
	__u32 way, over = 0, freed = 0;
	__u16 now;

	if (!b)
		return 0;
	now = lb_time();
	for (way = 0; way < LB_WAYS; way++)
		over |= lb_gc_expired(b, way, now);
	if (!over || !lb_bucket_lock(b))
		return 0;
	now = lb_time();
	for (way = 0; way < LB_WAYS; way++) {
		if (lb_gc_expired(b, way, now)) {
			lb_gc_free(b, way);
			freed++;
		}
	}
	lb_bucket_unlock(b);
	return freed;
}

static long lb_gc_next(__u32 n, void *arg)
{
	struct lb_gc_state *s = arg;

	s->freed += lb_gc_bucket(s->first + n);
	return 0;
}

/* Returns the number of entries that it has freed. */
SEC("xdp")
int lb_gc(struct xdp_md *ctx)
{
	const struct lb_gc_range *range = (void *)(long)ctx->data;
	struct lb_gc_state s = {};

	if ((void *)(range + 1) > (void *)(long)ctx->data_end)
		return 0; /* never */
	s.first = range->first;
	bpf_loop(range->count, lb_gc_next, &s, 0);
	return s.freed;
}

char _license[] SEC("license") = "Dual BSD/GPL";
