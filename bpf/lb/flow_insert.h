/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_FLOW_INSERT_H
#define CULVERT_LB_FLOW_INSERT_H

#include "core/lock.h"

#include "flow.h"

/* What writes to the flow table: new flows, other owners, times. */

/* Ages are more by so many ticks here: those of times that another CPU's clock is ahead with are the least ones then. */
#define BALANCE_AHEAD (BALANCE_SKEW + 1)

/*
 * The way that a new flow may have in a full bucket, BALANCE_WAYS for none: of a flow that has expired, the oldest of
 * those that have had one packet, or of those that nobody has used lately. So a flood of SYNs takes no place
 * of a flow in use. Full buckets are what a flood finds, and this goes through all of one, so each instruction counts.
 */
static __always_inline __u32 balance_victim(const struct balance_bucket *b, __u16 now, bool syn)
{
	__u32 ahead = now + (BALANCE_AHEAD << 2 | 3), best = 0, i;

#pragma unroll
	for (i = 0; i < BALANCE_WAYS; i++) {
		__u16 time = b->time[i];
		__u32 age = (ahead - time) & BALANCE_TICKS << 2, state = time & 3, worth;

		worth = balance_less((balance_idle[state] + BALANCE_AHEAD) * 4 - 1, age) << 26;
		worth |= balance_less(state, 1) << 25;
		worth |= age << 2 | i;
		if (worth > best)
			best = worth;
	}
	/* Of flows in use, the best one is the oldest one. */
	if (best >> 25 || (!syn && best >> 4 >= BALANCE_SPARE + BALANCE_AHEAD))
		return best & 15;
	return BALANCE_WAYS;
}

/* Whether another flow may be taken in now. */
static __always_inline bool balance_admits(bool syn)
{
	__u32 which = syn ? BALANCE_LIMIT_SYN : BALANCE_LIMIT_OTHER;
	struct limit *l = bpf_map_lookup_elem(&balance_limits, &which);

	return l && !over_limit(l);
}

/*
 * One program at a time decides who has a flow of a bucket: two that meet its first packets agree on one backend,
 * whatever has become of the ring meanwhile.
 */
static __always_inline bool balance_lock(struct balance_bucket *b)
{
	return lock_take(&b->lock);
}

static __always_inline void balance_unlock(struct balance_bucket *b)
{
	lock_give(&b->lock);
}

/* Writes an entry of a locked bucket; those who read it meanwhile see that. */
static __always_inline void balance_write(struct balance_bucket *b, __u32 way,
					  const struct balance_flow *f, __u32 owner, __u16 time)
{
	struct balance_entry *e = &b->entry[way];
	__u32 lock = *(volatile __u32 *)&e->lock | 1;

	*(volatile __u32 *)&e->lock = lock;
	barrier();
	*(volatile __u64 *)&e->src[0] = f->src[0];
	*(volatile __u64 *)&e->src[1] = f->src[1];
	*(volatile __u32 *)&e->ports = f->ports;
	*(volatile __u32 *)&e->vip = f->vip;
	*(volatile __u32 *)&e->owner = owner;
	*(volatile __u16 *)&b->time[way] = time;
	*(volatile __u16 *)&b->tag[way] = balance_tag(f->hash);
	barrier();
	*(volatile __u32 *)&e->lock = lock + 1;
}

/* The owner of a flow in a locked bucket, after it has been taken in if need be; 0 if there is no room. */
static __always_inline __u32 balance_put(struct balance_bucket *b, const struct balance_flow *f,
					 __u32 owner, bool syn)
{
	__u64 found;
	__u32 way;
	__u16 now;

	if (balance_first(b, balance_tag(f->hash)) < BALANCE_WAYS) {
		found = balance_search(b, f);
		if (found)
			return found;
	}
	if (!balance_admits(syn))
		return 0;
	now = balance_time();
	way = balance_first(b, 0);
	if (way >= BALANCE_WAYS)
		way = balance_victim(b, now, syn);
	/* The verifier of 6.1 forgets the bound of what is saved across a call: from here on there is none. */
	if (way >= BALANCE_WAYS)
		return 0;
	balance_write(b, way, f, owner, now | BALANCE_FLOW_NEW);
	return owner;
}

/*
 * Takes a flow into the table. It returns its owner, which is another one if somebody was faster; 0 if there is no room,
 * or not at this rate.
 */
__noinline __u32 balance_insert(const struct balance_flow *f, __u32 owner, int syn)
{
	struct balance_bucket *b;

	if (!balance_on || !f)
		return 0;
	b = balance_bucket(f->hash);
	if (!b)
		return 0;
	if (!balance_lock(b))
		return balance_search(b, f); /* perhaps it was this flow that another CPU was at */
	owner = balance_put(b, f, owner, syn);
	balance_unlock(b);
	return owner;
}

/* Writes the time of a flow, which the table has in that way, after a packet of it. */
__noinline int balance_touch(const struct balance_flow *f, __u32 way, __u32 time)
{
	struct balance_bucket *b;

	if (!balance_on || !f || way >= BALANCE_WAYS)
		return 0;
	b = balance_bucket(f->hash);
	if (b)
		*(volatile __u16 *)&b->time[way] = time;
	return 0;
}

/*
 * Gives a flow, which the table had as balance_find says, another owner, and has it begin anew. It returns the owner that
 * it has then, 0 if that is not known.
 */
__noinline __u32 balance_renew(const struct balance_flow *f, __u64 was, __u32 owner)
{
	__u32 way = was >> 48, has = 0;
	__u16 time = was >> 32;
	struct balance_bucket *b;

	if (!balance_on || !f || way >= BALANCE_WAYS)
		return 0;
	b = balance_bucket(f->hash);
	if (!b || !balance_lock(b))
		return 0;
	if (balance_same(&b->entry[way], f)) {
		has = *(volatile __u32 *)&b->entry[way].owner;
		if (has == (__u32)was && *(volatile __u16 *)&b->time[way] == time) {
			balance_write(b, way, f, owner, balance_time() | BALANCE_FLOW_NEW);
			has = owner;
		}
	}
	balance_unlock(b);
	return has;
}

#endif
