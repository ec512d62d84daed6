/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_VIP_H
#define CULVERT_LB_VIP_H

#include "vip_cache.h"
#include "flow_insert.h"

/* Whether there may be a VIP of that address. */
static __always_inline bool lb_vip_maybe(const struct ip_addr *addr)
{
	__u32 zero = 0, hash = bloom_addr(addr->w[0], addr->w[1], addr->w[2], addr->w[3]);
	struct bloom *addrs = bpf_map_lookup_elem(&lb_addrs, &zero);

	return addrs && bloom_has(addrs, hash);
}

/* Whether packets to an address are spread over workers, given its bloom_addr(). */
static __always_inline bool lb_spreads(__u32 hash)
{
	__u32 zero = 0;
	struct bloom *addrs;

	if (!lb_on)
		return false;
	addrs = bpf_map_lookup_elem(&lb_addrs, &zero);
	return addrs && bloom_has(addrs, hash);
}

/*
 * The VIP of an address, protocol and port, or else the one for all ports of the address. It clears key->port for the
 * second lookup.
 */
static __always_inline const struct lb_vip *lb_vip(struct lb_vip_key *key)
{
	const struct lb_vip *vip = bpf_map_lookup_elem(&lb_vips, key);

	if (vip)
		return vip;
	key->port = 0;
	return bpf_map_lookup_elem(&lb_vips, key);
}

/* As above, from the cache. It copies the VIP. */
static __always_inline bool lb_vip_lookup_fast(struct lb_vip_key *key, struct lb_vip *vip)
{
	if (lb_vip_cache_lookup(key, vip))
		return true;
	key->port = 0;
	return lb_vip_cache_lookup(key, vip);
}

/* The entry for all VIPs of an address and protocol; NULL if there are none. */
static __always_inline const struct lb_vip *lb_vip_any_port(struct lb_vip_key *key)
{
	key->port = 0;
	key->any = 1;
	return bpf_map_lookup_elem(&lb_vips, key);
}

/*
 * The backend at a flow's position in the ring, 0 for none. The position is the same on all machines with the same
 * seed (lbplane.Options.Position).
 */
__noinline __u32 lb_ring_lookup(const struct lb_flow *f, __u32 flags, __u32 proto)
{
	struct lb_positions *line;
	__u32 number, pos, i;
	void *ring;
	__u64 h;

	if (!lb_on || !f || flags & LB_VIP_EMPTY)
		return 0;
	h = hash_word(lb_seed[0], lb_seed[1], f->src[0]);
	h += hash_word(lb_seed[2], lb_seed[3], f->src[1]);
	if (flags & LB_VIP_SOURCE_PORT)
		h += hash_word(lb_seed[4], lb_seed[5], (__u16)f->ports);
	else if (!(flags & LB_VIP_SOURCE))
		h += hash_word(lb_seed[4], lb_seed[5], f->ports | (__u64)proto << 32);
	pos = ((hash_mix(h) & 0xffffffff) * lb_ring_size) >> 32;
	number = f->vip;
	ring = bpf_map_lookup_elem(&lb_rings, &number);
	if (!ring)
		return 0;
	i = pos / LB_POSITIONS;
	line = bpf_map_lookup_elem(ring, &i);
	return line ? *(volatile __u32 *)&line->backend[pos % LB_POSITIONS] : 0;
}

/* The most tries to read a latch. One is enough, unless the program is halted while user space changes the backend. */
#define LB_READS 4

/* The element of a backend's number. It may belong to another backend by now, so readers compare the ID. */
static __always_inline struct lb_backend_latch *lb_backend_lookup(__u32 id)
{
	__u32 number = id & LB_NUMBER;

	return bpf_map_lookup_elem(&lb_backends, &number);
}

/*
 * Whether a backend still exists and may keep flows. With LB_VIP_MOVE in the flags of its VIP, a backend that is down
 * keeps none.
 */
static __always_inline bool lb_backend_valid(__u32 id, __u32 vip_flags)
{
	struct lb_backend_latch *latch = lb_backend_lookup(id);
	__u32 seq, i, has;
	__u8 flags;

	if (!latch)
		return false;
	for (i = 0; i < LB_READS; i++) {
		seq = latch_begin(&latch->seq);
		has = *(volatile __u32 *)&latch->version[seq & 1].id;
		flags = *(volatile __u8 *)&latch->version[seq & 1].flags;
		if (seq_same(&latch->seq, seq))
			return has == id && flags & LB_BACKEND_USED &&
			       !(flags & LB_BACKEND_DOWN && vip_flags & LB_VIP_MOVE);
	}
	return false;
}

/* Whether flows stay with an existing backend, by the flags of its VIP. */
static __always_inline bool lb_flow_sticky(const struct lb_backend *backend, __u32 vip_flags)
{
	return !(backend->flags & LB_BACKEND_DOWN && vip_flags & LB_VIP_MOVE);
}

/* Copies a backend. False if it does not exist any more. id includes the generation. */
static __always_inline bool lb_backend_read(struct lb_backend_latch *latch, __u32 id,
					    struct lb_backend *to)
{
	__u32 seq, i;

	barrier_var(to); /* otherwise clang copies single bytes */
	for (i = 0; i < LB_READS; i++) {
		seq = latch_begin(&latch->seq);
		copy(to, &latch->version[seq & 1], sizeof(*to));
		if (seq_same(&latch->seq, seq))
			return to->id == id && to->flags & LB_BACKEND_USED;
	}
	return false;
}

#endif
