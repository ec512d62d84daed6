/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_ROUTE_LPM_H
#define CULVERT_ROUTE_LPM_H

#include "core/packet.h"

/*
 * The mirrored tables: a multibit trie with steps of 24 and 8 bits for IPv4, and of 16 and then 8 bits for IPv6. An
 * entry leads to a block of the next level, or is the number of an element of route_hops. internal/route/lpm writes the
 * tables and describes the layout. A table of zeros has no routes: 0 is ROUTE_HOP_ASK.
 */
#define LPM_BLOCK 0x80000000
#define LPM_VALUE 0x007fffff

struct lpm_block {
	__u32 e[256];
};

/*
 * Key: the upper 16 bits of an IPv4 address, or the upper 8 of an IPv6 address. This and the next two maps are mapped
 * into memory. Writer: internal/route/lpm.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lpm_block);
} route_root4 SEC(".maps"), route_root6 SEC(".maps");

/* Key: number of the block. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lpm_block);
} route_blocks4 SEC(".maps"), route_blocks6 SEC(".maps");

/* Reads an entry. User space may be writing it, so clang must load it only once. */
static __always_inline __u32 lpm_entry(const struct lpm_block *b, __u8 i)
{
	return b ? *(volatile const __u32 *)&b->e[i] : 0;
}

static __always_inline __u32 lpm_find4(__be32 addr)
{
	__u32 a = bpf_ntohl(addr);
	__u32 key = a >> 16;
	__u32 e;

	e = lpm_entry(bpf_map_lookup_elem(&route_root4, &key), a >> 8);
	if (e & LPM_BLOCK) {
		key = e & LPM_VALUE;
		e = lpm_entry(bpf_map_lookup_elem(&route_blocks4, &key), a);
	}
	return e & LPM_VALUE;
}

/* Checked by the verifier once, and not again for each path to a call. high and low are in host order. */
__noinline __u32 lpm_find6(__u64 high, __u64 low)
{
	__u32 key = high >> 56;
	__u32 i, e;

	e = lpm_entry(bpf_map_lookup_elem(&route_root6, &key), high >> 48);
	for (i = 2; i < 16; i++) {
		if (!(e & LPM_BLOCK))
			break;
		key = e & LPM_VALUE;
		e = lpm_entry(bpf_map_lookup_elem(&route_blocks6, &key),
			      (i < 8 ? high : low) >> (56 - 8 * (i & 7)));
	}
	return e & LPM_VALUE;
}

#endif
