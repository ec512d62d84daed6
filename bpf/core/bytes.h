/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_BYTES_H
#define CULVERT_CORE_BYTES_H

/*
 * Loads and stores at any alignment and of any type. The JITs and the verifier allow any alignment on packets.
 * may_alias keeps clang from assuming that bytes stored as one type are not those loaded as another.
 */
typedef __u16 __attribute__((may_alias)) any16;
typedef __u32 __attribute__((may_alias)) any32;
typedef __u64 __attribute__((may_alias)) any64;

#define LOAD8(p) (*(const __u8 *)(p))
#define LOAD16(p) (*(const any16 *)(p))
#define LOAD32(p) (*(const any32 *)(p))
#define LOAD64(p) (*(const any64 *)(p))
#define STORE16(p, v) (*(any16 *)(p) = (v))
#define STORE32(p, v) (*(any32 *)(p) = (v))
#define STORE64(p, v) (*(any64 *)(p) = (v))

/* Copies n bytes in the widest steps; n is an even constant. clang alone would copy single bytes. */
static __always_inline void copy(void *dst, const void *src, const __u32 n)
{
	__u32 i = 0;

#pragma unroll
	for (; i + 8 <= n; i += 8)
		STORE64(dst + i, LOAD64(src + i));
	if (n & 4) {
		STORE32(dst + i, LOAD32(src + i));
		i += 4;
	}
	if (n & 2)
		STORE16(dst + i, LOAD16(src + i));
}

#endif
