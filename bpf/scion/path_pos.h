/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_SCION_PATH_POS_H
#define CULVERT_SCION_PATH_POS_H

#include "maps.h"

#define SCION_META_LEN 4
#define SCION_INFO_LEN 8
#define SCION_HOP_LEN 12
#define SCION_MAX_HOPS 64

enum scion_place_flags {
	PLACE_OUTSIDE = 1 << 0, /* the current info or hop field is not on the path */
	PLACE_WRONG_INFO = 1 << 1, /* the current hop field belongs to another info field */
	PLACE_LONE_HOP = 1 << 2, /* a segment of one hop, as only peering paths have */
	PLACE_NO_PEERING = 1 << 3, /* not two segments, as peering paths have */
	PLACE_AT_PEERING = 1 << 4, /* where a peering path crosses the peering link */
	PLACE_FIRST = 1 << 5,
	PLACE_LAST = 1 << 6,
	PLACE_SWITCH = 1 << 7, /* the next hop field is of the next segment */
	PLACE_SWITCHED = 1 << 8, /* the last hop field was of the segment before */
};

/*
 * What the path meta header says, which is one word: where on the path a packet is and where its
 * fields are. Offsets are from the meta header, lengths and offsets in bytes.
 */
struct scion_place {
	__be32 meta;
	__be32 next; /* the meta header for the next hop, without reserved bits */
	__u16 len; /* of the path; 0: entry not in use; more than any header if it is malformed */
	__u16 flags;
	__u16 hop_off;
	__u16 info_off;
};

#define SCION_PLACES 256
#define PLACE_MALFORMED 0xffff

/*
 * Places seen lately, direct mapped. Paths of one shape share theirs, so a few serve most traffic.
 * Writer: the programs.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCION_PLACES);
	__type(key, __u32);
	__type(value, struct scion_place);
} scion_places SEC(".maps");

/*
 * Works a place out (scion.Base DecodeFromBytes, IncPath; router determinePeer). Global, so that the
 * verifier looks at it once and not in each state of its callers. Returns 0.
 */
__noinline int scion_place_fill(struct scion_place *at, __be32 meta)
{
	__u32 word = bpf_ntohl(meta);
	__u32 inf = word >> 30, hf = word >> 24 & 0x3f;
	__u32 seg0 = word >> 12 & 0x3f, seg1 = word >> 6 & 0x3f, seg2 = word & 0x3f;
	__u32 num_inf = !!seg0 + !!seg1 + !!seg2;
	__u32 num_hops = seg0 + seg1 + seg2;
	__u32 hf_inf = (hf >= seg0) + (hf >= seg0 + seg1);
	__u32 next_inf = (hf + 1 >= seg0) + (hf + 1 >= seg0 + seg1);
	__u32 last_inf = (hf > seg0) + (hf > seg0 + seg1);
	__u32 flags = 0;

	if (!at)
		return 0;
	if (hf >= num_hops || inf >= num_inf)
		flags |= PLACE_OUTSIDE;
	if (inf != hf_inf)
		flags |= PLACE_WRONG_INFO;
	if (seg0 == 1 || seg1 == 1 || seg2 == 1)
		flags |= PLACE_LONE_HOP;
	if (!seg1 || seg2)
		flags |= PLACE_NO_PEERING;
	if (hf + 1 == seg0 || hf == seg0)
		flags |= PLACE_AT_PEERING;
	if (!hf)
		flags |= PLACE_FIRST;
	if (hf + 1 == num_hops)
		flags |= PLACE_LAST;
	if (hf + 1 < num_hops && inf != next_inf)
		flags |= PLACE_SWITCH;
	if (hf && inf && inf - 1 == last_inf)
		flags |= PLACE_SWITCHED;
	at->meta = meta;
	at->next = (meta & bpf_htonl(0x3ffff)) | bpf_htonl(next_inf << 30 | (hf + 1) << 24);
	at->flags = flags;
	at->info_off = SCION_META_LEN + SCION_INFO_LEN * inf;
	at->hop_off = SCION_META_LEN + SCION_INFO_LEN * num_inf + SCION_HOP_LEN * hf;
	at->len = SCION_META_LEN + SCION_INFO_LEN * num_inf + SCION_HOP_LEN * num_hops;
	if ((!seg0 && (seg1 || seg2)) || (!seg1 && seg2) || num_hops > SCION_MAX_HOPS)
		at->len = PLACE_MALFORMED;
	return 0;
}

/* Finds what a meta header says. */
static __always_inline struct scion_place *scion_place(__be32 meta)
{
	/* Fibonacci hashing: the high bits of the product depend on all of the word. */
	__u32 slot = meta * 0x9e3779b1u >> 24;
	struct scion_place *at = bpf_map_lookup_elem(&scion_places, &slot);

	if (at && (at->meta != meta || !at->len))
		scion_place_fill(at, meta);
	return at;
}

#endif
