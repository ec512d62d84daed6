/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_FILTER_LIMIT_H
#define CULVERT_FILTER_LIMIT_H

#include "flow_keys.h"
#include "core/hash.h"

/*
 * Rate limits by the generic cell rate algorithm (GCRA). A key has one time stamp: when everything that it has sent so
 * far would have been due at its rate. All CPUs charge the same time stamp by compare-and-exchange, so the rate holds
 * for all of them together. The unit is a tick of 1/16 ns: at 1e9 packets a second a packet costs 16 ticks, and 64 bits
 * last for 36 years of uptime.
 */
#define LIMIT_TICKS 16

/* What a rate applies to. Shared with filterplane. */
#define LIMIT_PER_RULE 0
#define LIMIT_PER_SRC 1
#define LIMIT_PER_DST 2

#define FILTER_MAX_LIMITS 4096

/*
 * The number of compare-and-exchange races that a packet may lose. After that it passes. It is charged without a check,
 * or if it got no entry, not at all.
 */
#define LIMIT_TRIES 4

/* One cache line. Of a limit in use only due changes. */
struct filter_limit {
	__u64 due; /* ticks; for limits per rule only */
	__u64 burst; /* how far due may be ahead of now, ticks */
	__u64 mult; /* cost of a packet, ticks, or of a byte, ticks << shift; 0: no limit */
	__u64 mask6[2]; /* of an IPv6 address, network order */
	__be32 mask4;
	__u8 shift;
	__u8 bytes; /* the rate is in bytes of whole frames, not in packets */
	__u8 per;
	__u8 order; /* the table has 1 << order buckets */
	__u32 key[4]; /* secret of the hash */
};

/*
 * Key: number of the limit. There is room for those of two programs, the old one and the one that replaces it. Writer:
 * filterplane, before a program uses the number. Writer of due: the programs.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * FILTER_MAX_LIMITS);
	__type(key, __u32);
	__type(value, struct filter_limit);
} filter_limits SEC(".maps");

#define LIMIT_WAYS 4

struct limit_entry {
	__u64 tag; /* hash of the key, 0: never used */
	__u64 due;
};

/* One cache line, because mappable maps begin at a page. */
struct limit_bucket {
	struct limit_entry entry[LIMIT_WAYS];
};

struct limit_table {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct limit_bucket));
};

/*
 * The tables of limits per address. Key: number of the limit. Writer: filterplane. Writer of the tables: the programs.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 2 * FILTER_MAX_LIMITS);
	__type(key, __u32);
	__array(values, struct limit_table);
} filter_limit_tables SEC(".maps");

/*
 * Hashes the address that a limit applies to. The hash is never 0. Without the secret nobody can predict which
 * addresses share a bucket. Two IPv4 addresses never collide, because key[3] is odd and the rest is invertible. Two
 * IPv6 addresses collide with a probability of 2^-32 at most.
 */
static __always_inline __u64 limit_hash(const struct filter_limit *l, const struct flow_keys *keys)
{
	const struct ip_addr *a = l->per == LIMIT_PER_DST ? &keys->dst : &keys->src;
	__u64 h = 0;

	if (keys->ip == 4) {
		h = hash_word(l->key[2], l->key[3], a->w[3] & l->mask4);
	} else if (keys->ip == 6) {
		h = hash_word(l->key[0], l->key[1], (a->w[0] | (__u64)a->w[1] << 32) & l->mask6[0]);
		h += hash_word(l->key[2], l->key[3],
			       (a->w[2] | (__u64)a->w[3] << 32) & l->mask6[1]);
	}
	/* Keys of the two families differ. All packets other than IP have one key. */
	h ^= (__u64)keys->ip << 61;
	h = hash_mix(h);
	return h ?: 1;
}

/*
 * Charges a packet, and returns 0. Returns 1 if the packet is over the rate. A frame that costs more than the burst
 * passes if nothing is owed.
 */
static __always_inline int limit_charge(__u64 *due, __u64 now, __u64 cost, __u64 burst)
{
	__u64 old, ahead;
	int i;

#pragma clang loop unroll(disable)
	for (i = 0; i < LIMIT_TRIES; i++) {
		old = *(volatile __u64 *)due;
		ahead = old > now ? old - now : 0;
		if (ahead && ahead + cost > burst)
			return 1;
		if (__sync_val_compare_and_swap(due, old, now + ahead + cost) == old)
			return 0;
	}
	/*
	 * Other CPUs have won the races, so the rate had room until just now. The packet is charged without a check. So
	 * at most one packet for each CPU comes early.
	 */
	__sync_fetch_and_add(due, cost);
	return 0;
}

/*
 * Charges the entry of a key. A key without an entry takes the entry with the earliest time stamp. If that time has
 * passed, the key of the entry owes nothing and loses nothing. If all entries are in debt, the key with the least debt
 * loses its entry, and has a whole burst when it comes back.
 *
 * CPUs race to write the tag. The winner sets the time stamp to now, unless another CPU has charged the entry already.
 * A race can have these effects:
 *
 *   - A packet of the former key on another CPU is charged to the new key, or not at all.
 *   - A packet of the new key that comes before the time stamp is set is refused for the debt of the former key.
 *   - Two CPUs choose different entries for one key. The first of them counts from then on, and the packet that is
 *     charged to the second one is free.
 *
 * Each concerns at most one packet for each CPU and each change of an entry's key.
 */
static __always_inline int limit_charge_key(struct limit_bucket *b, __u64 tag, __u64 now,
					    __u64 cost, __u64 burst)
{
	__u64 least, due, had, found;
	struct limit_entry *e;
	bool known = false;
	__u32 at = 0;
	int i, n;

#pragma clang loop unroll(disable)
	for (n = 0; n < LIMIT_TRIES && !known; n++) {
		least = ~0ULL;
		had = 0;
#pragma unroll
		for (i = 0; i < LIMIT_WAYS; i++) {
			found = *(volatile __u64 *)&b->entry[i].tag;
			due = *(volatile __u64 *)&b->entry[i].due;
			if (found == tag) {
				known = true;
				at = i;
				break;
			}
			if (due < least) {
				least = due;
				had = found;
				at = i;
			}
		}
		barrier_var(at);
		e = &b->entry[at & (LIMIT_WAYS - 1)];
		if (known || __sync_val_compare_and_swap(&e->tag, had, tag) != had)
			continue;
		if (__sync_val_compare_and_swap(&e->due, least, now + cost) == least)
			return 0;
		known = true;
	}
	if (!known)
		return 0;
	return limit_charge(&b->entry[at & (LIMIT_WAYS - 1)].due, now, cost, burst);
}

/* Whether the packet is over the rate of a limit. */
__noinline int filter_over(struct xdp_md *ctx, const struct flow_keys *keys, __u32 limit)
{
	struct filter_limit *l = bpf_map_lookup_elem(&filter_limits, &limit);
	struct limit_bucket *b;
	__u64 now, cost, tag;
	void *table;
	__u32 at;

	if (!keys || !l || !l->mult)
		return 0;
	cost = l->mult;
	if (l->bytes)
		cost = bpf_xdp_get_buff_len(ctx) * cost >> (l->shift & 63);
	now = bpf_ktime_get_ns() * LIMIT_TICKS;
	if (l->per == LIMIT_PER_RULE)
		return limit_charge(&l->due, now, cost, l->burst);
	table = bpf_map_lookup_elem(&filter_limit_tables, &limit);
	if (!table)
		return 0;
	tag = limit_hash(l, keys);
	at = tag & ((1ULL << (l->order & 31)) - 1);
	b = bpf_map_lookup_elem(table, &at);
	if (!b)
		return 0;
	return limit_charge_key(b, tag, now, cost, l->burst);
}

#endif
