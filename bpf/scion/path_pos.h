/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_SCION_PATH_POS_H
#define CULVERT_SCION_PATH_POS_H

#include "maps.h"

#define SCION_META_LEN 4
#define SCION_INFO_LEN 8
#define SCION_HOP_LEN 12
#define SCION_MAX_HOPS 64

enum path_pos_flags {
	PATH_POS_OUTSIDE = 1 << 0, /* the current info or hop field is not on the path */
	PATH_POS_WRONG_INFO = 1 << 1, /* the current hop field belongs to another info field */
	PATH_POS_LONE_HOP = 1 << 2, /* a segment of one hop, as only peering paths have */
	PATH_POS_NO_PEERING = 1 << 3, /* the path has not two segments, as peering paths have */
	PATH_POS_AT_PEERING = 1 << 4, /* where a peering path crosses the peering link */
	PATH_POS_FIRST = 1 << 5,
	PATH_POS_LAST = 1 << 6,
	PATH_POS_SWITCH = 1 << 7, /* the next hop field is of the next segment */
	PATH_POS_SWITCHED = 1 << 8, /* the previous hop field is of the previous segment */
};

/*
 * What follows from the path meta header, a single word: where on its path a packet is, and where the current fields
 * are. Offsets are from the meta header. Lengths and offsets are in bytes.
 */
struct path_pos {
	__be32 meta;
	__be32 next; /* the meta header for the next hop, without reserved bits */
	__u16 len; /* of the path; 0: entry not in use; PATH_POS_MALFORMED is more than any header has */
	__u16 flags;
	__u16 hop_off;
	__u16 info_off;
};

#define PATH_POSITIONS 256
#define PATH_POS_MALFORMED 0xffff

/*
 * A direct-mapped cache of positions. Paths of the same shape share positions, so a few serve most traffic. Key: hash
 * of the meta header. Writer: the programs.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PATH_POSITIONS);
	__type(key, __u32);
	__type(value, struct path_pos);
} path_positions SEC(".maps");

/* What the fields of a meta header say: the current info and hop field, and the lengths of the segments in hops. */
struct path_meta {
	__u32 inf, hf, seg0, seg1, seg2;
};

/*
 * Reads the fields anew for each question that is asked of them. What the verifier learns about one answer then decides no other,
 * and it need not follow all combinations of answers.
 */
static __always_inline struct path_meta path_meta(__u32 word)
{
	barrier_var(word);
	struct path_meta m = {
		.inf = word >> 30,
		.hf = word >> 24 & 0x3f,
		.seg0 = word >> 12 & 0x3f,
		.seg1 = word >> 6 & 0x3f,
		.seg2 = word & 0x3f,
	};

	return m;
}

/* The info field that a hop field belongs to. */
static __always_inline __u32 path_inf_of(const struct path_meta *m, __u32 hf)
{
	return (hf >= m->seg0) + (hf >= m->seg0 + m->seg1);
}

static __always_inline __u32 path_hops(const struct path_meta *m)
{
	return m->seg0 + m->seg1 + m->seg2;
}

static __always_inline __u32 path_segs(__u32 word)
{
	struct path_meta m = path_meta(word);

	return !!m.seg0 + !!m.seg1 + !!m.seg2;
}

static __always_inline bool path_outside(__u32 word)
{
	struct path_meta m = path_meta(word);

	return m.hf >= path_hops(&m);
}

/* Whether a hop field, counted from the current one, belongs to the current info field. */
static __always_inline bool path_same_inf(__u32 word, __u32 ahead)
{
	struct path_meta m = path_meta(word);

	return m.inf == path_inf_of(&m, m.hf + ahead);
}

static __always_inline bool path_lone_hop(__u32 word)
{
	struct path_meta m = path_meta(word);

	return m.seg0 == 1 || m.seg1 == 1 || m.seg2 == 1;
}

static __always_inline bool path_no_peering(__u32 word)
{
	struct path_meta m = path_meta(word);

	return !m.seg1 || m.seg2;
}

static __always_inline bool path_at_peering(__u32 word)
{
	struct path_meta m = path_meta(word);

	return m.hf + 1 == m.seg0 || m.hf == m.seg0;
}

/* The hops behind the current one. */
static __always_inline __u32 path_behind(__u32 word)
{
	struct path_meta m = path_meta(word);

	return path_hops(&m) - m.hf - 1;
}

static __always_inline bool path_switched(__u32 word)
{
	struct path_meta m = path_meta(word);

	return m.hf && m.inf && m.inf - 1 == (m.hf > m.seg0) + (m.hf > m.seg0 + m.seg1);
}

static __always_inline __u32 path_pos_flags(__u32 word)
{
	__u32 flags = 0;

	if (path_outside(word) || path_meta(word).inf >= path_segs(word))
		flags |= PATH_POS_OUTSIDE;
	if (!path_same_inf(word, 0))
		flags |= PATH_POS_WRONG_INFO;
	if (path_lone_hop(word))
		flags |= PATH_POS_LONE_HOP;
	if (path_no_peering(word))
		flags |= PATH_POS_NO_PEERING;
	if (path_at_peering(word))
		flags |= PATH_POS_AT_PEERING;
	if (!path_meta(word).hf)
		flags |= PATH_POS_FIRST;
	if (!path_behind(word))
		flags |= PATH_POS_LAST;
	else if (!path_outside(word) && !path_same_inf(word, 1))
		flags |= PATH_POS_SWITCH;
	if (path_switched(word))
		flags |= PATH_POS_SWITCHED;
	return flags;
}

static __always_inline bool path_malformed(__u32 word)
{
	struct path_meta m = path_meta(word);

	return (!m.seg0 && (m.seg1 || m.seg2)) || (!m.seg1 && m.seg2) ||
	       path_hops(&m) > SCION_MAX_HOPS;
}

static __always_inline void path_pos_places(struct path_pos *at, __u32 word)
{
	__u32 head = SCION_META_LEN + SCION_INFO_LEN * path_segs(word);
	struct path_meta m = path_meta(word);

	at->meta = bpf_htonl(word);
	at->info_off = SCION_META_LEN + SCION_INFO_LEN * m.inf;
	at->hop_off = head + SCION_HOP_LEN * m.hf;
	at->len = head + SCION_HOP_LEN * path_hops(&m);
	m = path_meta(word);
	at->next = bpf_htonl((word & 0x3ffff) | path_inf_of(&m, m.hf + 1) << 30 | (m.hf + 1) << 24);
	if (path_malformed(word))
		at->len = PATH_POS_MALFORMED;
}

/*
 * Works out a position (scion.Base DecodeFromBytes, IncPath; router determinePeer). It is global, so that the verifier
 * checks it once, and not in each state of its callers. Returns 0.
 */
__noinline int path_pos_fill(struct path_pos *at, __be32 meta)
{
	__u32 word = bpf_ntohl(meta);

	if (!at)
		return 0;
	at->flags = path_pos_flags(word);
	path_pos_places(at, word);
	return 0;
}

/* Returns the position that a meta header stands for. */
static __always_inline struct path_pos *path_pos(__be32 meta)
{
	/* Fibonacci hashing: the high bits of the product depend on all of the word. */
	__u32 slot = meta * 0x9e3779b1u >> 24;
	struct path_pos *at = bpf_map_lookup_elem(&path_positions, &slot);

	if (at && (at->meta != meta || !at->len))
		path_pos_fill(at, meta);
	return at;
}

#endif
