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
 * aes_te[row][byte row of x]. The table's address is added to the index in assembly. clang would copy the address
 * first, which is a tenth of all instructions.
 */
static __always_inline __u32 aes_lookup(const void *te, __u64 x, const int row)
{
	__u64 p = row ? x >> (8 * row - 2) : x << 2;

	p &= 0x3fc;
	asm("%0 += %1" : "+r"(p) : "r"(te));
	return *(const __u32 *)(p + row * sizeof(aes_te[0]));
}

#define AES_COLUMN(te, a, b, c, d, k)                                         \
	(aes_lookup(te, a, 0) ^ aes_lookup(te, b, 1) ^ aes_lookup(te, c, 2) ^ \
	 aes_lookup(te, d, 3) ^ (k))

#define AES_ROUND(te, d, s, k)                                         \
	do {                                                           \
		d##0 = AES_COLUMN(te, s##0, s##1, s##2, s##3, (k)[0]); \
		d##1 = AES_COLUMN(te, s##1, s##2, s##3, s##0, (k)[1]); \
		d##2 = AES_COLUMN(te, s##2, s##3, s##0, s##1, (k)[2]); \
		d##3 = AES_COLUMN(te, s##3, s##0, s##1, s##2, (k)[3]); \
	} while (0)

/*
 * The first six bytes of the CMAC in memory order, in bits 0 to 47. The block is given in columns and has to have
 * zeros in bytes 0, 1, 8, 14 and 15, as every hop field's has.
 *
 * The verifier checks a global function like this one once, by itself, and not again for each path to a call.
 */
__noinline __u64 aes_cmac(const struct aes_cmac_key *key, __u32 s0, __u32 s1, __u32 s2, __u32 s3)
{
	const void *te = (const void *)aes_te;
	const __u32 *k;
	__u32 t0, t1, t2, t3;
	__u32 lo, hi;

	if (!key)
		return 0;
	k = key->rk;
	barrier_var(te);
	s0 ^= k[0];
	s1 ^= k[1];
	s2 ^= k[2];
	s3 ^= k[3];
	/* The lookups of the bytes that are 0 depend on the key alone. k[4] to k[7] include them. */
	t0 = aes_lookup(te, s1, 1) ^ aes_lookup(te, s2, 2) ^ k[4];
	t1 = aes_lookup(te, s1, 0) ^ aes_lookup(te, s2, 1) ^ aes_lookup(te, s0, 3) ^ k[5];
	t2 = aes_lookup(te, s3, 1) ^ aes_lookup(te, s0, 2) ^ aes_lookup(te, s1, 3) ^ k[6];
	t3 = aes_lookup(te, s3, 0) ^ aes_lookup(te, s1, 2) ^ aes_lookup(te, s2, 3) ^ k[7];
	AES_ROUND(te, s, t, k + 8);
	AES_ROUND(te, t, s, k + 12);
	AES_ROUND(te, s, t, k + 16);
	AES_ROUND(te, t, s, k + 20);
	AES_ROUND(te, s, t, k + 24);
	AES_ROUND(te, t, s, k + 28);
	AES_ROUND(te, s, t, k + 32);
	AES_ROUND(te, t, s, k + 36);
	/* The last round has no MixColumns; each table holds the S-box in two of its bytes. */
	lo = (aes_lookup(te, t0, 0) >> 8 & 0xff) ^ (aes_lookup(te, t1, 1) >> 16 & 0xff) << 8 ^
	     (aes_lookup(te, t2, 2) & 0xff) << 16 ^ (aes_lookup(te, t3, 3) & 0xff) << 24 ^ k[40];
	hi = (aes_lookup(te, t1, 0) >> 8 & 0xff) ^ (aes_lookup(te, t2, 1) >> 16 & 0xff) << 8 ^
	     (k[41] & 0xffff);
	return lo | (__u64)hi << 32;
}

#endif
