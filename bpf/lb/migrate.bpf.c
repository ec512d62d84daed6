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
 * Inserts a flow of a former flow table into one that programs already use. User space runs it once for each flow
 * that is missing. Like gc.bpf.c it is an XDP program: it takes locks, and a process may be killed while it holds
 * one.
 */

/* The flow, which user space passes as the packet. Shared with flowEntry.bytes of internal/lb/lbplane/migrate.go. */
struct lb_migrate_entry {
	struct lb_flow flow;
	__u32 backend;
	__u16 time; /* with the state */
	__u8 pad[2];
};

/*
 * The worth of an entry, as in flowClock.worth of internal/lb/lbplane/table.go. It is 0 for an expired flow, and lower
 * for a flow that has had one packet than for others. It grows with the time of the last packet. There is no branch,
 * because the verifier would follow it for each way of a bucket.
 */
static __always_inline __u32 lb_migrate_worth(__u16 time, __u16 now)
{
	__u32 state = time & 3, age = lb_age(time, now);
	__u32 worth = (2 - lb_less(state, LB_FLOW_NEW + 1)) * (LB_TICKS + 1) - age;

	return worth & -lb_less(age, lb_idle[state]);
}

/*
 * The way to insert a flow of that worth: a free one, or the one whose flow is worth least. LB_WAYS if no flow is worth
 * less.
 */
__noinline int lb_migrate_way(const struct lb_bucket *b, __u32 worth, __u32 now)
{
	__u32 least = worth << 4 | 15, i;

	if (!b)
		return LB_WAYS;
	for (i = 0; i < LB_WAYS; i++) {
		__u32 used = 1 - lb_less(b->tag[i], 1);
		__u32 w = ((lb_migrate_worth(b->time[i], now) + 1) & -used) << 4 | i;

		least -= (least - w) & -lb_less(w, least);
	}
	return least & 15;
}

/* Returns 0 if the bucket is locked: user space tries again. */
__noinline int lb_migrate_flow(const struct lb_migrate_entry *e)
{
	struct lb_bucket *b;
	__u16 now = lb_time();
	__u32 way;

	if (!e)
		return 1;
	b = lb_bucket(e->flow.hash);
	if (!b)
		return 1;
	if (!lb_bucket_lock(b))
		return 0;
	if (!lb_flow_scan(b, &e->flow)) { /* a flow that the programs have inserted is newer */
		way = lb_migrate_way(b, lb_migrate_worth(e->time, now), now);
		if (way < LB_WAYS)
			lb_entry_write(b, way, &e->flow, e->backend, e->time);
	}
	lb_bucket_unlock(b);
	return 1;
}

SEC("xdp")
int lb_migrate(struct xdp_md *ctx)
{
	struct lb_migrate_entry e __attribute__((aligned(8)));

	if (bpf_xdp_load_bytes(ctx, 0, &e, sizeof(e)))
		return 1; /* never */
	return lb_migrate_flow(&e);
}

char _license[] SEC("license") = "Dual BSD/GPL";
