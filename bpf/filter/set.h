/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_FILTER_SET_H
#define CULVERT_FILTER_SET_H

#include "flow_keys.h"

/* Which address of a packet a rule looks up. Shared with filterplane. */
#define FILTER_SRC 0
#define FILTER_DST 1

/* The sets of each kind: twice the most in use, so that all can be exchanged at once. */
#define FILTER_SETS 512

/*
 * A set of prefixes is an array of lines. internal/filter/filterset writes them and describes the layout. Numbers are
 * in host order. Line 0 is the header. The other lines are the table, the trees and the times when members expire.
 */
#define FILTER_LINE 128
#define FILTER_LINE_WORDS 32

/* The members of one family. */
struct filter_set_family {
	__u64 prefix; /* the first skip bits, which all members share */
	__u64 first; /* bucket of the table's first entry */
	__u64 last[2]; /* the last member; for user space */
	__u32 buckets; /* of the table; 0: no members */
	__u32 skip;
	__u32 shift; /* the 64 bits behind skip (32 for IPv4) >> shift are the number of a bucket */
	__u32 table; /* line of the table */
	__u32 trees; /* line of the first tree */
	__u32 times; /* line of the times, 0: members do not expire */
};

struct filter_set_header {
	__u32 format; /* for user space */
	__u32 lines;
	__u64 pad;
	struct filter_set_family v4;
	struct filter_set_family v6;
};

struct filter_set_line {
	union {
		__u32 w[FILTER_LINE_WORDS];
		struct filter_set_header header;
	};
} __attribute__((aligned(8)));

/*
 * An entry of the table: the first line of a tree, the height of the tree, and in bit 0 whether slot 0 of the tree is a member.
 * Membership alternates from slot to slot.
 */
#define FILTER_TREE_LINE(e) ((e) >> 5)
#define FILTER_TREE_HEIGHT(e) ((e) >> 1 & 15)
#define FILTER_TREE_HIGHEST 11

/* Times are CLOCK_BOOTTIME, ns >> FILTER_TIME_SHIFT. This clock goes on during suspend and is never set. */
#define FILTER_TIME_SHIFT 28
#define FILTER_TIME_EVER 0xffffffff

struct filter_set_lines {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP | BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, FILTER_LINE); /* struct filter_set_line */
};

/* Sets of prefixes. Key: number of the set. A set never changes: user space replaces it. Writer: filterplane. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, FILTER_SETS);
	__type(key, __u32);
	__array(values, struct filter_set_lines);
} filter_sets SEC(".maps");

/* An address and a port, as in a packet. An IPv4-mapped IPv6 address is not the IPv4 address. */
struct filter_endpoint {
	struct ip_addr addr;
	__be16 port;
	__u8 ip; /* 4 or 6 */
	__u8 pad;
};

struct filter_set_endpoints {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(struct filter_endpoint));
	__uint(value_size, sizeof(__u32)); /* when the member expires, as above */
};

/* Sets of endpoints, which are replaced in the same way. Key: number of the set. Writer: filterplane. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, FILTER_SETS);
	__type(key, __u32);
	__array(values, struct filter_set_endpoints);
} filter_endpoints SEC(".maps");

/* Whether a member that expires at that time has not expired. 0 stands for no member. */
static __always_inline bool filter_set_until(__u32 until)
{
	/* The clock costs more than the rest of a lookup. It is read only for members that expire. */
	if (!until || until == FILTER_TIME_EVER)
		return until;
	return bpf_ktime_get_boot_ns() >> FILTER_TIME_SHIFT < until;
}

/* All ones if the top bit of v is set, else 0. There is no branch, because the CPU could not predict it. */
static __always_inline __u64 filter_set_sign(__u64 v)
{
	barrier_var(v);
	return (__s64)v >> 63;
}

/*
 * Advances a pointer by n bytes, a power of 2, if the top bit of v is set. The barrier keeps clang from turning the
 * addition into an OR, which the verifier of Linux 6.1 refuses for pointers.
 */
#define FILTER_SET_STEP(at, v, n)               \
	do {                                    \
		at += filter_set_sign(v) & (n); \
		barrier_var(at);                \
	} while (0)

/* The slot of the last of 32 keys that is less than x, by binary search. Slot 0 counts as less. */
static __always_inline __u32 filter_set_slot4(const void *line, __u64 x)
{
	const void *at = line;

	FILTER_SET_STEP(at, LOAD32(at + 64) - x, 64);
	FILTER_SET_STEP(at, LOAD32(at + 32) - x, 32);
	FILTER_SET_STEP(at, LOAD32(at + 16) - x, 16);
	FILTER_SET_STEP(at, LOAD32(at + 8) - x, 8);
	FILTER_SET_STEP(at, LOAD32(at + 4) - x, 4);
	return (at - line) >> 2 & 31;
}

/* The top bit of the result is the borrow of k - x. d is k - x less the borrow of the lower bits. */
static __always_inline __u64 filter_set_borrow(__u64 k, __u64 x, __u64 d)
{
	return (~k & x) | ((~k | x) & d);
}

/*
 * The top bit of the result is set if the key is less than high and low. The lower half of a key is 64 bytes behind its
 * upper half.
 */
static __always_inline __u64 filter_set_below6(const void *key, __u64 high, __u64 low)
{
	__u64 k = LOAD64(key + 64), b;

	b = filter_set_borrow(k, low, k - low);
	barrier_var(b);
	k = LOAD64(key);
	return filter_set_borrow(k, high, k - high - (b >> 63));
}

/* As filter_set_slot4, for 8 keys. */
static __always_inline __u32 filter_set_slot6(const void *line, __u64 high, __u64 low)
{
	const void *at = line;

	FILTER_SET_STEP(at, filter_set_below6(at + 32, high, low), 32);
	FILTER_SET_STEP(at, filter_set_below6(at + 16, high, low), 16);
	FILTER_SET_STEP(at, filter_set_below6(at + 8, high, low), 8);
	return (at - line) >> 3 & 7;
}

/* Looks up the 64 bits behind skip in the table, which gives a tree, and then the address in the tree. */
static __always_inline bool filter_set_find(void *set, const struct filter_set_family *f,
					    __u64 bits, __u64 high, __u64 low, const bool v4)
{
	__u64 bucket = (bits >> (f->shift & 63)) - f->first;
	struct filter_set_line *line;
	__u32 n, tree, slot, i;

	if (bucket >= f->buckets)
		return false;
	n = f->table + (bucket >> 5);
	line = bpf_map_lookup_elem(set, &n);
	if (!line)
		return false;
	tree = line->w[bucket & 31];
	n = FILTER_TREE_LINE(tree);
	for (i = 1;; i++) {
		line = bpf_map_lookup_elem(set, &n);
		if (!line || i > FILTER_TREE_HIGHEST)
			return false;
		slot = v4 ? filter_set_slot4(line, low) : filter_set_slot6(line, high, low);
		if (i >= FILTER_TREE_HEIGHT(tree))
			break;
		n = line->w[0] + slot; /* slot 0 holds the first child in place of a key */
	}
	if (!f->times)
		return (slot ^ tree) & 1;
	slot += (n - f->trees) << (v4 ? 5 : 3);
	barrier_var(slot);
	n = f->times + (slot >> 5);
	line = bpf_map_lookup_elem(set, &n);
	return line && filter_set_until(line->w[slot & 31]);
}

/* As filter_set_has, for IPv6. It is a global function, so that it is not inlined and the verifier checks it once. */
__noinline int filter_set_has6(const struct flow_keys *keys, __u32 set, __u32 side)
{
	const struct filter_set_line *line;
	__u64 high, low;
	__u32 zero = 0, skip;
	const void *addr;
	void *inner;

	if (!keys)
		return 0;
	inner = bpf_map_lookup_elem(&filter_sets, &set);
	if (!inner)
		return 0;
	line = bpf_map_lookup_elem(inner, &zero);
	if (!line)
		return 0;
	addr = side ? &keys->dst : &keys->src;
	high = bpf_be64_to_cpu(((__u64)LOAD32(addr + 4) << 32) | LOAD32(addr));
	low = bpf_be64_to_cpu(((__u64)LOAD32(addr + 12) << 32) | LOAD32(addr + 8));
	skip = line->header.v6.skip & 63;
	if (high >> 1 >> (63 - skip) != line->header.v6.prefix)
		return 0;
	return filter_set_find(inner, &line->header.v6, (high << skip) | (low >> 1 >> (63 - skip)),
			       high, low, false);
}

/* Whether an address of the packet is in a set of prefixes. */
__noinline int filter_set_has(const struct flow_keys *keys, __u32 set, __u32 side)
{
	const struct filter_set_line *line;
	__u32 zero = 0, addr;
	void *inner;

	if (!keys)
		return 0;
	if (keys->ip != 4)
		return keys->ip == 6 ? filter_set_has6(keys, set, side) : 0;
	inner = bpf_map_lookup_elem(&filter_sets, &set);
	if (!inner)
		return 0;
	line = bpf_map_lookup_elem(inner, &zero);
	if (!line)
		return 0;
	addr = bpf_ntohl(side ? keys->dst.w[3] : keys->src.w[3]);
	return filter_set_find(inner, &line->header.v4, addr, 0, addr, true);
}

/* Whether an address and port of the packet are in a set of endpoints. */
__noinline int filter_set_has_endpoint(const struct flow_keys *keys, __u32 set, __u32 side)
{
	struct filter_endpoint key = {};
	__u32 *until;
	void *inner;

	if (!keys || !keys->ports)
		return 0;
	inner = bpf_map_lookup_elem(&filter_endpoints, &set);
	if (!inner)
		return 0;
	key.addr = side ? keys->dst : keys->src;
	key.port = side ? keys->dport : keys->sport;
	key.ip = keys->ip;
	until = bpf_map_lookup_elem(inner, &key);
	return until && filter_set_until(*(volatile __u32 *)until);
}

#endif
