/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_HASH_H
#define CULVERT_CORE_HASH_H

/*
 * Keyed hashes. Without the secret nobody can predict which keys collide. A sum of hash_word results, each with 8 bytes
 * of the secret of its own, is the hash NH of UMAC (RFC 4418, 5.2.2): two keys collide with a probability of 2^-32 at
 * most. One multiplication covers 8 bytes, and the multiplications do not depend on each other.
 */
static __always_inline __u64 hash_word(__u32 a, __u32 b, __u64 w)
{
	return (__u64)((__u32)w + a) * (__u32)((w >> 32) + b);
}

/* Improves the low bits of such a sum, which are poor. Each step is invertible, so it adds no collisions. */
static __always_inline __u64 hash_mix(__u64 h)
{
	h ^= h >> 32;
	h *= 0x9e3779b97f4a7c15ULL;
	h ^= h >> 29;
	h *= 0xd6e8feb86659fd93ULL;
	return h ^ h >> 32;
}

#endif
