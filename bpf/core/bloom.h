/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_BLOOM_H
#define CULVERT_CORE_BLOOM_H

/*
 * A Bloom filter with one hash function, in front of a hash table. One load rules out most keys that the table does not
 * have. User space sets a bit for each key, by the same hash, and may do so while programs read.
 */
#define BLOOM_BITS 12
#define BLOOM_WORDS (1 << (BLOOM_BITS - 6))

struct bloom {
	__u64 bits[BLOOM_WORDS];
};

/* Fibonacci hashing: the upper bits of the product depend on all of a word. */
#define BLOOM_SPREAD 0x9e3779b1U

/* The hash of an IP address, given its words as struct ip_addr (core/packet.h) has them. */
static __always_inline __u32 bloom_addr(__u32 w0, __u32 w1, __u32 w2, __u32 w3)
{
	__u32 h = w0 * BLOOM_SPREAD + w1;

	h = h * BLOOM_SPREAD + w2;
	return (h * BLOOM_SPREAD + w3) * BLOOM_SPREAD;
}

/* Whether the table may have a key with that hash. The hash is a product with BLOOM_SPREAD. */
static __always_inline bool bloom_has(const struct bloom *b, __u32 hash)
{
	__u32 bit = hash >> (32 - BLOOM_BITS);

	return *(volatile const __u64 *)&b->bits[bit >> 6 & (BLOOM_WORDS - 1)] >> (bit & 63) & 1;
}

#endif
