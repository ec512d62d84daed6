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
 * Inserts a flow into a flow table that programs already use: one of a former table that is missing, or one that another
 * load balancer has told of. User space runs it once for each flow. Like gc.bpf.c it is an XDP program: it takes locks,
 * and a process may be killed while it holds one.
 */

/* The flow, which user space passes as the packet. Shared with flowEntry.bytes of internal/lb/lbplane/migrate.go. */
struct lb_migrate_entry {
	struct lb_flow flow;
	__u32 backend;
	__u16 time; /* with the state */
	__u16 was_time;
	__u32 was; /* an entry of the flow with this backend and was_time is replaced; 0: none is */
	__u32 modest; /* not 0: it takes no way from a flow that has not expired */
};

/* What has become of the flow. Shared with the constants of internal/lb/lbplane/migrate.go. */
enum lb_migrate_result {
	LB_MIGRATE_LOCKED, /* the bucket is locked: user space tries again */
	LB_MIGRATE_DONE,
	LB_MIGRATE_KEPT, /* the table has the flow already, and it stays as it is */
	LB_MIGRATE_FULL, /* there is no room in its bucket */
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

/* The way to write the flow to, in a locked bucket. LB_WAYS if there is none. */
__noinline int lb_migrate_place(const struct lb_bucket *b, const struct lb_migrate_entry *e)
{
	__u16 now = lb_time();
	__u32 worth;

	if (!b || !e)
		return LB_WAYS;
	worth = lb_migrate_worth(e->time, now);
	if (e->modest)
		worth = 1 -
			lb_less(worth, 1); /* flows that have expired are worth less, no others */
	return lb_migrate_way(b, worth, now);
}

/* Returns enum lb_migrate_result. */
__noinline int lb_migrate_flow(const struct lb_migrate_entry *e)
{
	int result;
	struct lb_bucket *b;
	__u64 found;
	__u32 way;

	if (!e)
		return LB_MIGRATE_FULL;
	b = lb_bucket(e->flow.hash);
	if (!b)
		return LB_MIGRATE_FULL;
	if (!lb_bucket_lock(b))
		return LB_MIGRATE_LOCKED;
	found = lb_flow_scan(b, &e->flow);
	if (found) {
		/* A flow that the programs have inserted, or have seen a packet of, is newer. */
		way = (__u32)found == e->was && (__u16)(found >> 32) == e->was_time ? found >> 48
										    : LB_WAYS;
		result = LB_MIGRATE_KEPT;
	} else {
		way = lb_migrate_place(b, e);
		result = LB_MIGRATE_FULL;
	}
	if (way < LB_WAYS) {
		lb_entry_write(b, way, &e->flow, e->backend, e->time);
		result = LB_MIGRATE_DONE;
	}
	lb_bucket_unlock(b);
	return result;
}

SEC("xdp")
int lb_migrate(struct xdp_md *ctx)
{
	struct lb_migrate_entry e __attribute__((aligned(8)));

	if (bpf_xdp_load_bytes(ctx, 0, &e, sizeof(e)))
		return LB_MIGRATE_FULL; /* never */
	return lb_migrate_flow(&e);
}

char _license[] SEC("license") = "Dual BSD/GPL";
