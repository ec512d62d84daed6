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
 * Takes a flow of another flow table into one that programs work on already. User space runs it, once for each flow that
 * is missing. Like gc.bpf.c it is a program of XDP, because it holds locks, and a process may be killed while it does.
 */

/* The flow. It comes as the packet. Shared with balanceEntry.bytes of internal/datapath/balancecarrier.go. */
struct lb_migrate_entry {
	struct lb_flow flow;
	__u32 backend;
	__u16 time; /* and state */
	__u8 pad[2];
};

/*
 * What is lost with an entry, as balanceClock.worth of internal/datapath/balancetable.go has it: 0 for one whose time is over,
 * less for those that have had one packet than for others, and more for what had a packet later. Without a branch, so that the
 * verifier need not follow each way of a bucket.
 */
static __always_inline __u32 lb_migrate_worth(__u16 time, __u16 now)
{
	__u32 state = time & 3, age = lb_age(time, now);
	__u32 worth = (2 - lb_less(state, LB_FLOW_NEW + 1)) * (LB_TICKS + 1) - age;

	return worth & -lb_less(age, lb_idle[state]);
}

/* The way for a flow that is worth so much: one that is free, or worth least; no way if all are worth as much. */
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

/* Returns 0 if the programs are at the bucket: try again. */
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
	if (!lb_flow_scan(b, &e->flow)) { /* the programs know better */
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
