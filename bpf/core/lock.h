/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_LOCK_H
#define CULVERT_CORE_LOCK_H

#include "compiler.h"

/*
 * A lock in a map, which programs hold for some hundred instructions. bpf_spin_lock is none for this: map values
 * with it cannot be mapped into memory, and there is no other call while it is held.
 *
 * Why it holds: what is done under it stays there. It is taken by compare-and-exchange and given back by xchg.
 * The JITs make LOCK CMPXCHG and XCHG of them on x86, CASAL and SWPAL on arm64, or LDXR and STLXR with DMB ISH: the
 * first acquires, the second releases. A plain store would do on x86, but not on arm64.
 */

/* How often a program tries: longer than another one needs the lock. */
#define LOCK_TRIES 128

static __always_inline bool lock_take(__u32 *lock)
{
	__u32 i;

	for (i = 0; i < LOCK_TRIES; i++) {
		if (!*(volatile __u32 *)lock && !__sync_val_compare_and_swap(lock, 0, 1))
			return true;
	}
	return false;
}

static __always_inline void lock_give(__u32 *lock)
{
	barrier();
	__sync_lock_test_and_set(lock, 0);
}

#endif
