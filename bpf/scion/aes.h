/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_SCION_AES_H
#define CULVERT_SCION_AES_H

#include "core/compiler.h"

/*
 * AES-128 (FIPS 197) of one block by table lookups, for the MAC of SCION hop fields. That MAC is AES-CMAC (RFC 4493) of
 * exactly one block, AES(K, block ^ K1), truncated to 6 bytes.
 *
 * Columns are little-endian words: byte r of a column is in bits 8r to 8r+7.
 */

/* S-box and MixColumns in one: aes_te[r][x] is what byte x in row r adds to its column. */
const volatile __u32 aes_te[4][256];

struct aes_cmac_key {
	/*
	 * Round keys. The first one includes K1, because both are XORed with the block. The second one includes the
	 * lookups of the five bytes that are 0 in every block (see aes_cmac).
	 */
	__u32 rk[44];
	__u64 id; /* different for different keys; 0: no key */
	/* The key verifies from not_before on until not_after, ns since the epoch. */
	__u64 not_before;
	__u64 not_after;
};

/*
 * aes_te[row][byte row of a column]. The state is on the stack, where each of its bytes is a load: shifting and masking columns takes
 * more instructions, and more registers than there are. The table's address is added to the index in assembly. clang would
 * copy the address first.
 */
static __always_inline __u32 aes_lookup(const void *te, const volatile __u32 *column, const int row)
{
	__u64 p = ((const volatile __u8 *)column)[row];

	p <<= 2;
	asm("%0 += %1" : "+r"(p) : "r"(te));
	return *(const __u32 *)(p + row * sizeof(aes_te[0]));
}

/* The S-box alone, which is a byte of each entry of a table. */
static __always_inline __u64 aes_sbox(const void *te, const volatile __u32 *column, const int row)
{
	__u64 p = ((const volatile __u8 *)column)[row];

	p <<= 2;
	asm("%0 += %1" : "+r"(p) : "r"(te));
	return *(const __u8 *)(p + 1);
}

static __always_inline void aes_round(const void *te, volatile __u32 *to,
				      const volatile __u32 *from, const __u32 *k)
{
	int i;

#pragma unroll
	for (i = 0; i < 4; i++)
		to[i] = k[i] ^ aes_lookup(te, from + i, 0) ^ aes_lookup(te, from + (i + 1) % 4, 1) ^
			aes_lookup(te, from + (i + 2) % 4, 2) ^
			aes_lookup(te, from + (i + 3) % 4, 3);
}

/*
 * The first six bytes of the CMAC in memory order, in bits 0 to 47. The block is given in columns and has to have
 * zeros in bytes 0, 1, 8, 14 and 15, as every hop field's has.
 *
 * The verifier checks a global function like this one once, by itself, and not again for each path to a call.
 */
__noinline __u64 aes_cmac(const struct aes_cmac_key *key, __u32 s0, __u32 s1, __u32 s2, __u32 s3)
{
	const void *te = (const void *)aes_te;
	volatile __u32 s[4], t[4];
	const __u32 *k;

	if (!key)
		return 0;
	k = key->rk;
	barrier_var(te);
	s[0] = s0 ^ k[0];
	s[1] = s1 ^ k[1];
	s[2] = s2 ^ k[2];
	s[3] = s3 ^ k[3];
	/* The lookups of the bytes that are 0 depend on the key alone. k[4] to k[7] include them. */
	t[0] = k[4] ^ aes_lookup(te, s + 1, 1) ^ aes_lookup(te, s + 2, 2);
	t[1] = k[5] ^ aes_lookup(te, s + 1, 0) ^ aes_lookup(te, s + 2, 1) ^ aes_lookup(te, s, 3);
	t[2] = k[6] ^ aes_lookup(te, s + 3, 1) ^ aes_lookup(te, s, 2) ^ aes_lookup(te, s + 1, 3);
	t[3] = k[7] ^ aes_lookup(te, s + 3, 0) ^ aes_lookup(te, s + 1, 2) ^
	       aes_lookup(te, s + 2, 3);
	aes_round(te, s, t, k + 8);
	aes_round(te, t, s, k + 12);
	aes_round(te, s, t, k + 16);
	aes_round(te, t, s, k + 20);
	aes_round(te, s, t, k + 24);
	aes_round(te, t, s, k + 28);
	aes_round(te, s, t, k + 32);
	aes_round(te, t, s, k + 36);
	/* The last round has no MixColumns. */
	return (aes_sbox(te, t, 0) | aes_sbox(te, t + 1, 1) << 8 | aes_sbox(te, t + 2, 2) << 16 |
		aes_sbox(te, t + 3, 3) << 24 | aes_sbox(te, t + 1, 0) << 32 |
		aes_sbox(te, t + 2, 1) << 40) ^
	       (k[40] | (__u64)(k[41] & 0xffff) << 32);
}

#endif
