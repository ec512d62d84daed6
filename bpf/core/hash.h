/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_HASH_H
#define CULVERT_CORE_HASH_H

/*
 * Hashes with a secret: without it nobody can tell which keys meet. Sums of hash_word, each with 8 bytes
 * of the secret, are NH of UMAC (RFC 4418, 5.2.2): two keys have the same with a chance of 2^-32 at most. One
 * multiplication for 8 bytes, and none waits for another.
 */
static __always_inline __u64 hash_word(__u32 a, __u32 b, __u64 w)
{
	return (__u64)((__u32)w + a) * (__u32)((w >> 32) + b);
}

/* Sums of products have poor low bits. Each step can be undone, so nothing more collides. */
static __always_inline __u64 hash_mix(__u64 h)
{
	h ^= h >> 32;
	h *= 0x9e3779b97f4a7c15ULL;
	h ^= h >> 29;
	h *= 0xd6e8feb86659fd93ULL;
	return h ^ h >> 32;
}

#endif
