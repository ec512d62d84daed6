/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_VIP_H
#define CULVERT_LB_VIP_H

#include "vip_cache.h"
#include "flow_insert.h"

/* The hash of an address in the filter in front of balance_vips. */
static __always_inline __u32 balance_addr_hash(const struct ip_addr *addr)
{
	__u32 h = addr->w[0] * BLOOM_SPREAD + addr->w[1];

	h = h * BLOOM_SPREAD + addr->w[2];
	return (h * BLOOM_SPREAD + addr->w[3]) * BLOOM_SPREAD;
}

/* Whether there may be a VIP of that address. */
static __always_inline bool balance_maybe(const struct ip_addr *addr)
{
	__u32 zero = 0, hash = balance_addr_hash(addr);
	struct bloom *addrs = bpf_map_lookup_elem(&balance_addrs, &zero);

	return addrs && bloom_has(addrs, hash);
}

/* The VIP of an address, protocol and port, or the one for all its ports. */
static __always_inline const struct balance_vip *balance_vip(struct balance_vip_key *key)
{
	const struct balance_vip *vip = bpf_map_lookup_elem(&balance_vips, key);

	if (vip)
		return vip;
	key->port = 0;
	return bpf_map_lookup_elem(&balance_vips, key);
}

/* The same, quickly: copies it. */
static __always_inline bool balance_service(struct balance_vip_key *key, struct balance_vip *vip)
{
	if (balance_get(key, vip))
		return true;
	key->port = 0;
	return balance_get(key, vip);
}

/* What is known of the VIPs of an address and protocol, whatever the port; NULL if there are none. */
static __always_inline const struct balance_vip *balance_any(struct balance_vip_key *key)
{
	key->port = 0;
	key->any = 1;
	return bpf_map_lookup_elem(&balance_vips, key);
}

/*
 * The owner of a position of the ring, 0 for none. The position is the same on all machines with the same
 * seed (balance.Position).
 */
__noinline __u32 balance_by_ring(const struct balance_flow *f, __u32 flags, __u32 proto)
{
	struct balance_positions *line;
	__u32 number, pos, i;
	void *ring;
	__u64 h;

	if (!balance_on || !f || flags & BALANCE_VIP_EMPTY)
		return 0;
	h = hash_word(balance_seed[0], balance_seed[1], f->src[0]);
	h += hash_word(balance_seed[2], balance_seed[3], f->src[1]);
	if (flags & BALANCE_VIP_SOURCE_PORT)
		h += hash_word(balance_seed[4], balance_seed[5], (__u16)f->ports);
	else if (!(flags & BALANCE_VIP_SOURCE))
		h += hash_word(balance_seed[4], balance_seed[5], f->ports | (__u64)proto << 32);
	pos = ((hash_mix(h) & 0xffffffff) * balance_ring_size) >> 32;
	number = f->vip;
	ring = bpf_map_lookup_elem(&balance_rings, &number);
	if (!ring)
		return 0;
	i = pos / BALANCE_POSITIONS;
	line = bpf_map_lookup_elem(ring, &i);
	return line ? *(volatile __u32 *)&line->owner[pos % BALANCE_POSITIONS] : 0;
}

/* A version that user space was not writing is found at once, but for a program that was halted meanwhile. */
#define BALANCE_READS 4

/* Where the member is that has the number of an owner. */
static __always_inline struct balance_slot *balance_slot(__u32 owner)
{
	__u32 number = owner & BALANCE_NUMBER;

	return bpf_map_lookup_elem(&balance_members, &number);
}

/* Whether an owner is there still, and may have packets of flows that it had if a VIP has those flags. */
static __always_inline bool balance_stays(__u32 owner, __u32 vip_flags)
{
	struct balance_slot *slot = balance_slot(owner);
	__u32 seq, i, has = 0;
	__u8 flags = 0;

	if (!slot)
		return false;
	for (i = 0; i < BALANCE_READS; i++) {
		seq = *(volatile __u32 *)&slot->seq;
		has = *(volatile __u32 *)&slot->version[seq & 1].owner;
		flags = *(volatile __u8 *)&slot->version[seq & 1].flags;
		if (*(volatile __u32 *)&slot->seq == seq)
			break;
	}
	return has == owner && flags & BALANCE_MEMBER_USED &&
	       !(flags & BALANCE_MEMBER_DOWN && vip_flags & BALANCE_VIP_MOVE);
}

/* Whether flows stay with a member, if the VIP has those flags. */
static __always_inline bool balance_keeps(const struct balance_member *m, __u32 vip_flags)
{
	return !(m->flags & BALANCE_MEMBER_DOWN && vip_flags & BALANCE_VIP_MOVE);
}

/* Copies a member, which user space may be changing. It returns false for an owner that has gone. */
static __always_inline bool balance_copy(struct balance_slot *slot, __u32 owner,
					 struct balance_member *to)
{
	__u32 seq, i;

	barrier_var(to); /* or clang would take it to pieces, of a byte even */
	for (i = 0; i < BALANCE_READS; i++) {
		seq = *(volatile __u32 *)&slot->seq;
		barrier();
		copy(to, &slot->version[seq & 1], sizeof(*to));
		barrier();
		if (*(volatile __u32 *)&slot->seq == seq)
			break;
	}
	return to->owner == owner && to->flags & BALANCE_MEMBER_USED;
}

#endif
