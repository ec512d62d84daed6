/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_FILTER_TOP_H
#define CULVERT_FILTER_TOP_H

#include "flow_keys.h"
#include "core/hash.h"

/*
 * The heaviest talkers, by Space-Saving (Metwally, Agrawal, El Abbadi, 2005) in buckets of a few entries. A key without
 * an entry takes over the smallest entry of its bucket together with the entry's count. error records how much of the
 * count belongs to earlier keys. For each CPU and window:
 *
 *   - a key with an entry has sent at least packets - error, and at most packets;
 *   - a key without one has sent at most what the smallest entry of its bucket has, and nothing if the
 *     bucket has an empty one;
 *   - that smallest entry has at most an eighth of the packets of the bucket;
 *   - the entries of a bucket add up to all its packets.
 *
 * Bytes are counted from when the key took the entry, so the key has sent at least that many.
 */

/* What the key of a packet is. Shared with filterplane. */
#define TOP_BY_SRC 1
#define TOP_BY_DST 2
#define TOP_BY_PREFIX 3 /* of the source, /24 and /48 */
#define TOP_BY_PORT 4 /* of the destination, with its protocol */

/* One of TOP_BY_; 0: talkers are not counted. */
const volatile __u8 filter_top_by;
/* A window lasts 1 << filter_top_shift ns, a bit over a second. It ends by itself, without a reader. */
const volatile __u8 filter_top_shift = 30;

/* Windows form a ring: one is being filled, three can be read. */
#define TOP_WINDOWS 4
#define TOP_BUCKETS 256
#define TOP_WAYS 8

struct top_key {
	__u64 w[3]; /* address, as in struct ip_addr; then port, protocol and version, see top_key_of */
};

struct top_bucket {
	__u64 stamp; /* number of the window, and filter_top_by; a bucket with another stamp is out of date */
	__u64 bytes; /* of all packets */
	__u32 tag[TOP_WAYS]; /* upper half of the key's hash, 0: empty */
	__u32 packets[TOP_WAYS];
	__u32 error[TOP_WAYS];
	__u64 seen[TOP_WAYS]; /* bytes */
	struct top_key key[TOP_WAYS];
};

#define TOP_STAMP(window) ((window) << 3 | filter_top_by)

/* Key: window * TOP_BUCKETS + bucket, the window modulo TOP_WINDOWS. Writer: the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TOP_WINDOWS * TOP_BUCKETS);
	__type(key, __u32);
	__type(value, struct top_bucket);
} filter_top_buckets SEC(".maps");

struct top_secret {
	__u32 key[6];
};

/* Without the secret nobody can predict which keys share a bucket. Writer: filterplane, when the map is new. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct top_secret);
} filter_top_secret SEC(".maps");

static __always_inline void top_key_of(const struct flow_keys *keys, struct top_key *key)
{
	const struct ip_addr *a = filter_top_by == TOP_BY_DST ? &keys->dst : &keys->src;

	if (filter_top_by == TOP_BY_PORT) {
		/* IPv4 and IPv6 share the ports. */
		key->w[2] = keys->dport | (__u32)keys->proto << 16 | (keys->ip ? 1 << 24 : 0);
		return;
	}
	key->w[0] = a->w[0] | (__u64)a->w[1] << 32;
	key->w[1] = a->w[2] | (__u64)a->w[3] << 32;
	key->w[2] = (__u32)keys->ip << 24;
	if (filter_top_by != TOP_BY_PREFIX)
		return;
	if (keys->ip == 4) {
		key->w[1] &= bpf_cpu_to_be64(0xffffffffffffff00ULL);
	} else {
		key->w[0] &= bpf_cpu_to_be64(0xffffffffffff0000ULL);
		key->w[1] = 0;
	}
}

static __always_inline __u64 top_hash(const struct top_secret *secret, const struct top_key *key)
{
	__u64 h = 0;
	int i;

#pragma unroll
	for (i = 0; i < 3; i++)
		h += hash_word(secret->key[2 * i], secret->key[2 * i + 1], key->w[i]);
	return hash_mix(h);
}

static __always_inline void top_renew(struct top_bucket *b, __u64 stamp)
{
	int i;

#pragma unroll
	for (i = 0; i < TOP_WAYS; i++) {
		b->tag[i] = 0;
		b->packets[i] = 0;
	}
	b->bytes = 0;
	b->stamp = stamp;
}

/* Returns the entry of a key. A key that has none takes over the smallest one. */
static __always_inline __u32 top_entry(struct top_bucket *b, __u32 tag, const struct top_key *key)
{
	__u32 least = ~0U, at = 0;
	int i;

#pragma unroll
	for (i = 0; i < TOP_WAYS; i++) {
		if (b->tag[i] == tag && b->key[i].w[0] == key->w[0] &&
		    b->key[i].w[1] == key->w[1] && b->key[i].w[2] == key->w[2])
			return i;
		if (b->packets[i] < least) {
			least = b->packets[i];
			at = i;
		}
	}
	barrier_var(at);
	at &= TOP_WAYS - 1;
	b->tag[at] = tag;
	b->error[at] = least;
	b->seen[at] = 0;
	b->key[at] = *key;
	return at;
}

/* Counts a packet for its key. Each CPU has its own tables. */
__noinline int filter_top(struct xdp_md *ctx, const struct flow_keys *keys)
{
	struct top_key key = {};
	struct top_secret *secret;
	__u64 window, hash, len;
	struct top_bucket *b;
	__u32 zero = 0, at;

	secret = bpf_map_lookup_elem(&filter_top_secret, &zero);
	if (!keys || !secret)
		return 0;
	top_key_of(keys, &key);
	hash = top_hash(secret, &key);
	window = bpf_ktime_get_coarse_ns() >> (filter_top_shift & 63);
	at = (window & (TOP_WINDOWS - 1)) * TOP_BUCKETS + (hash & (TOP_BUCKETS - 1));
	b = bpf_map_lookup_elem(&filter_top_buckets, &at);
	if (!b)
		return 0;
	if (b->stamp != TOP_STAMP(window))
		top_renew(b, TOP_STAMP(window));
	at = top_entry(b, (hash >> 32) ?: 1, &key);
	barrier_var(at);
	at &= TOP_WAYS - 1;
	len = bpf_xdp_get_buff_len(ctx);
	b->bytes += len;
	b->packets[at]++;
	b->seen[at] += len;
	return 0;
}

#endif
