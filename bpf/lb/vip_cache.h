/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_VIP_CACHE_H
#define CULVERT_LB_VIP_CACHE_H

#include "maps.h"

/*
 * A direct-mapped table in front of lb_vips. It has most VIPs, and rules out most other addresses. A lookup takes 40
 * instructions here, and 200 in the kernel's hash table.
 */
#define LB_VIP_CACHE_BITS 12

#define LB_VIP_CACHE_MORE 2 /* some VIPs with this index are in lb_vips only */

struct lb_vip_cache_entry {
	__u64 addr[2]; /* as struct ip_addr */
	__u32 service; /* port and protocol, see lb_vip_cache_service; 0: no VIP */
	__u32 seq; /* see core/seqcount.h; its second bit is LB_VIP_CACHE_MORE */
	struct lb_vip vip;
};

/* Writer: lbplane, in mapped memory. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lb_vip_cache_entry);
} lb_vip_cache SEC(".maps");

/* Port and protocol of a key in one word, which is never 0. */
static __always_inline __u32 lb_vip_cache_service(const struct lb_vip_key *key)
{
	return key->port | key->proto << 16 | 0x80000000;
}

static __always_inline __u32 lb_vip_cache_index(const __u64 *addr, __u32 service)
{
	__u64 h = (addr[0] * 0x9e3779b97f4a7c15ULL + addr[1]) ^ service;

	return h * 0xd6e8feb86659fd93ULL >> (64 - LB_VIP_CACHE_BITS);
}

/* Copies the VIP of a key. False if there is none. */
static __always_inline bool lb_vip_cache_lookup(struct lb_vip_key *key, struct lb_vip *vip)
{
	__u64 addr[2] = {LOAD64(&key->addr.w[0]), LOAD64(&key->addr.w[2])};
	__u32 service = lb_vip_cache_service(key), index = lb_vip_cache_index(addr, service);
	const struct lb_vip_cache_entry *f = bpf_map_lookup_elem(&lb_vip_cache, &index);
	const struct lb_vip *v;
	bool here;
	__u32 seq;

	if (!f)
		return false;
	barrier_var(vip); /* otherwise clang saves registers that are not initialized */
	seq = seq_begin(&f->seq);
	here = *(volatile const __u32 *)&f->service == service &&
	       *(volatile const __u64 *)&f->addr[1] == addr[1] &&
	       *(volatile const __u64 *)&f->addr[0] == addr[0];
	if (here)
		STORE64(vip, *(volatile const any64 *)&f->vip);
	if ((here || !(seq & LB_VIP_CACHE_MORE)) && seq_same(&f->seq, seq))
		return here;
	v = bpf_map_lookup_elem(&lb_vips, key);
	if (v)
		*vip = *v;
	return v;
}

#endif
