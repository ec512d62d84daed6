/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_FLOW_INSERT_H
#define CULVERT_LB_FLOW_INSERT_H

#include "core/lock.h"

#include "flow.h"

/* Writes to the flow table: new flows, other backends, times. */

/* Added to ages here, so that a time ahead of the clock gets the lowest age and none below 0. */
#define LB_AHEAD (LB_SKEW + 1)

/*
 * Returns the way that a new flow takes in a full bucket, LB_WAYS for none. The first choice is an expired flow. The
 * second is the oldest flow that has had one packet. The third is the oldest flow that has not been used lately, but
 * not for a SYN. So a flood of SYNs evicts no flow in use. In a flood most buckets are full, and this function compares
 * all ways of one: each instruction counts.
 */
static __always_inline __u32 lb_way_to_evict(const struct lb_bucket *b, __u16 now, bool syn)
{
	__u32 ahead = now + (LB_AHEAD << 2 | 3), best = 0, i;

#pragma unroll
	for (i = 0; i < LB_WAYS; i++) {
		__u16 time = b->time[i];
		__u32 age = (ahead - time) & LB_TICKS << 2, state = time & 3, worth;

		worth = lb_less((lb_idle[state] + LB_AHEAD) * 4 - 1, age) << 26;
		worth |= lb_less(state, 1) << 25;
		worth |= age << 2 | i;
		if (worth > best)
			best = worth;
	}
	/* Among the other flows the best one is the oldest. */
	if (best >> 25 || (!syn && best >> 4 >= LB_SPARE + LB_AHEAD))
		return best & 15;
	return LB_WAYS;
}

/* Whether another flow may be inserted within the rate. */
static __always_inline bool lb_insert_within_rate(bool syn)
{
	__u32 which = syn ? LB_LIMIT_SYN : LB_LIMIT_OTHER;
	struct limit *l = bpf_map_lookup_elem(&lb_limits, &which);

	return l && !over_limit(l);
}

/*
 * Locks a bucket. If two CPUs have first packets of the same flow, one assigns the backend and the other one uses it,
 * even if they have read different rings.
 */
static __always_inline bool lb_bucket_lock(struct lb_bucket *b)
{
	return lock_take(&b->lock);
}

static __always_inline void lb_bucket_unlock(struct lb_bucket *b)
{
	lock_give(&b->lock);
}

/* Writes an entry of a locked bucket. */
static __always_inline void lb_entry_write(struct lb_bucket *b, __u32 way, const struct lb_flow *f,
					   __u32 id, __u16 time)
{
	struct lb_entry *e = &b->entry[way];

	seq_write_begin(&e->seq);
	*(volatile __u64 *)&e->src[0] = f->src[0];
	*(volatile __u64 *)&e->src[1] = f->src[1];
	*(volatile __u32 *)&e->ports = f->ports;
	*(volatile __u32 *)&e->vip = f->vip;
	*(volatile __u32 *)&e->backend = id;
	*(volatile __u16 *)&b->time[way] = time;
	*(volatile __u16 *)&b->tag[way] = lb_tag(f->hash);
	seq_write_end(&e->seq);
}

/* Inserts a flow into a locked bucket unless it is there. Returns its backend, 0 if there is no room. */
static __always_inline __u32 lb_flow_insert_locked(struct lb_bucket *b, const struct lb_flow *f,
						   __u32 id, bool syn)
{
	__u64 found;
	__u32 way;
	__u16 now;

	if (lb_way_of_tag(b, lb_tag(f->hash)) < LB_WAYS) {
		found = lb_flow_scan(b, f);
		if (found)
			return found;
	}
	now = lb_time();
	way = lb_way_preferred(f->hash);
	if (b->tag[way])
		way = lb_way_of_tag(b, 0);
	if (way >= LB_WAYS)
		way = lb_way_to_evict(b, now, syn);
	/*
	 * The verifier of 6.1 forgets the bounds of values that are saved across a call. So this test is behind the
	 * last call.
	 */
	if (way >= LB_WAYS)
		return 0;
	lb_entry_write(b, way, f, id, now | LB_FLOW_NEW);
	return id;
}

/*
 * Inserts a flow. Returns its backend: another one if another CPU has inserted it first, 0 if there is no room or the
 * rate is used up. The caller has looked the flow up. The rate is asked first: in a flood hardly a bucket is in the
 * cache, and its lock would have to wait for it, while all that follows the lookup need not. So above the rate a packet
 * that comes while another CPU inserts its flow goes by its own ring.
 */
__noinline __u32 lb_flow_insert(const struct lb_flow *f, __u32 id, int syn)
{
	struct lb_bucket *b;

	if (!lb_on || !f || !lb_insert_within_rate(syn))
		return 0;
	b = lb_bucket(f->hash);
	if (!b)
		return 0;
	if (!lb_bucket_lock(b))
		return lb_flow_scan(b, f); /* The other CPU may be inserting the same flow. */
	id = lb_flow_insert_locked(b, f, id, syn);
	lb_bucket_unlock(b);
	return id;
}

/* Writes the time and state of a flow after a packet. way is the flow's way in its bucket. */
__noinline int lb_flow_touch(const struct lb_flow *f, __u32 way, __u32 time)
{
	struct lb_bucket *b;

	if (!lb_on || !f || way >= LB_WAYS)
		return 0;
	b = lb_bucket(f->hash);
	if (b)
		*(volatile __u16 *)&b->time[way] = time;
	return 0;
}

/*
 * Assigns another backend to a flow and restarts it. was is the result of lb_flow_lookup. Returns the backend that the
 * flow has afterwards, 0 if that is not known.
 */
__noinline __u32 lb_flow_reassign(const struct lb_flow *f, __u64 was, __u32 id)
{
	__u32 way = was >> 48, has = 0;
	__u16 time = was >> 32;
	struct lb_bucket *b;

	if (!lb_on || !f || way >= LB_WAYS)
		return 0;
	b = lb_bucket(f->hash);
	if (!b || !lb_bucket_lock(b))
		return 0;
	if (lb_entry_is(&b->entry[way], f)) {
		has = *(volatile __u32 *)&b->entry[way].backend;
		if (has == (__u32)was && *(volatile __u16 *)&b->time[way] == time) {
			lb_entry_write(b, way, f, id, lb_time() | LB_FLOW_NEW);
			has = id;
		}
	}
	lb_bucket_unlock(b);
	return has;
}

#endif
