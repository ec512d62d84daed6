/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_BALANCE_INSERT_H
#define CULVERT_BALANCE_INSERT_H

#include "balance_flow.h"

/* What writes to the flow table: new flows, other owners, times. */

/*
 * The way that a new flow may have in a full bucket, BALANCE_WAYS for none: of a flow that has expired, the oldest of
 * those that have had one packet, or of those that nobody has used lately. So a flood of SYNs takes no place
 * of a flow in use.
 */
static __always_inline __u32 balance_victim(const struct balance_bucket *b, __u16 now, bool syn)
{
	__u32 best = 0, spare = syn ? 0x7fffffff : BALANCE_SPARE, i;

	for (i = 0; i < BALANCE_WAYS; i++) {
		__u16 time = b->time[i];
		__u32 age = balance_age(time, now), worth;

		worth = (1 - balance_less(age, balance_idle[time & 3])) << 26;
		worth |= balance_less(time & 3, 1) << 25;
		worth |= (1 - balance_less(age, spare)) << 24;
		/* age and number count only for a way that is worth anything at all */
		worth |= (age << 4 | i) & -balance_less(0, worth);
		best += (worth - best) & -balance_less(best, worth);
	}
	return best ? best & 15 : BALANCE_WAYS;
}

/* Whether another flow may be taken in now. */
static __always_inline bool balance_admits(bool syn)
{
	__u32 which = syn ? BALANCE_LIMIT_SYN : BALANCE_LIMIT_OTHER;
	struct limit *l = bpf_map_lookup_elem(&balance_limits, &which);

	return l && !over_limit(l);
}

/* How often a program tries for a bucket: longer than another one needs it. */
#define BALANCE_TRIES 128

/*
 * One program at a time decides who has a flow of a bucket: two that meet its first packets agree on one backend,
 * whatever has become of the ring meanwhile.
 */
static __always_inline bool balance_lock(struct balance_bucket *b)
{
	__u32 i;

	for (i = 0; i < BALANCE_TRIES; i++) {
		if (!*(volatile __u32 *)&b->lock && !__sync_val_compare_and_swap(&b->lock, 0, 1))
			return true;
	}
	return false;
}

static __always_inline void balance_unlock(struct balance_bucket *b)
{
	barrier();
	*(volatile __u32 *)&b->lock = 0;
}

/* For balance_write: the flow begins now. It asks for the time late: 6.1 would lose what it knows of way before. */
#define BALANCE_BEGINS (-1)

/* Writes an entry of a locked bucket; those who read it meanwhile see that. */
static __always_inline void balance_write(struct balance_bucket *b, __u32 way,
					  const struct balance_flow *f, __u32 owner, __s32 time)
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
	*(volatile __u16 *)&b->time[way] = time < 0 ? balance_time() | BALANCE_FLOW_NEW : time;
	*(volatile __u16 *)&b->tag[way] = balance_tag(f->hash);
	barrier();
	*(volatile __u32 *)&e->lock = lock + 1;
}

/* The owner of a flow in a locked bucket, after it has been taken in if need be; 0 if there is no room. */
static __always_inline __u32 balance_put(struct balance_bucket *b, const struct balance_flow *f,
					 __u32 owner, bool syn)
{
	__u64 found = balance_search(b, f);
	__u32 way;

	if (found)
		return found;
	if (!balance_admits(syn))
		return 0;
	way = balance_first(b, 0);
	if (way >= BALANCE_WAYS)
		way = balance_victim(b, balance_time(), syn);
	if (way >= BALANCE_WAYS)
		return 0;
	balance_write(b, way, f, owner, BALANCE_BEGINS);
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
			balance_write(b, way, f, owner, BALANCE_BEGINS);
			has = owner;
		}
	}
	balance_unlock(b);
	return has;
}

#endif
