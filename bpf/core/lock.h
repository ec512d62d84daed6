/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_LOCK_H
#define CULVERT_CORE_LOCK_H

#include "fence.h"

/*
 * A lock in a map. Programs hold it for some hundred instructions. bpf_spin_lock cannot be used: a map with one cannot
 * be mapped into memory, and a program that holds one may call nothing.
 *
 * Why it is correct: a program that takes the lock sees everything that the last holder did, and does nothing before it
 * has the lock. Taking the lock is a compare-and-exchange. The JITs make a successful one fully ordered: LOCK CMPXCHG
 * on x86, CASAL on arm64, or LDXR and STLXR followed by DMB ISH. Releasing the lock is a store behind a fence: a CPU
 * that sees the lock free sees everything that the holder did. internal/bpfobj/litmus_test.go checks this as well as
 * seqcount.h.
 */

/* The number of tries. They take longer than a holder needs. */
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
	fence();
	*(volatile __u32 *)lock = 0;
}

#endif
