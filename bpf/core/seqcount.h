/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_SEQCOUNT_H
#define CULVERT_CORE_SEQCOUNT_H

#include "fence.h"

/*
 * The one way to read what somebody may be writing: a sequence counter, as the kernel's seqcount_t. A program that meets
 * a writer does not wait, because a process may die while it writes. It takes another way instead: a hash table, the
 * kernel, the slow path. What has no other way is a latch (seqcount_latch_t): two versions, of which the lowest bit of
 * the counter names the one to read, while the writer is at the other one.
 *
 *   reader                                    writer
 *   seq = seq_begin(&x->seq)                  the counter gets its lowest bit
 *   loads of the data                         the data is written
 *   if (!seq_same(&x->seq, seq)) other way    the counter becomes a higher even number
 *
 * Why it holds: say a load of the data has got what the writer has stored. The writer has made the counter odd before,
 * with a fence in between, so the second load of the counter, which is behind a fence too, gets that number or a later
 * one. Say instead that the first load has got the even number that the writer has stored last. It has stored the data
 * before, with a fence in between, and the loads are behind a fence: they get all of it. A latch is the same: who has
 * loaded the number that names a version gets all of that version, and who has got a part of the next writing of it sees
 * that the number has gone on.
 *
 * The fences of writers: programs have those below. Processes that write to mapped memory store all of it with
 * sync/atomic, of which each store is a release (arm64: STLR), and releases are seen in their order. Processes that use
 * bpf(2) write the counter and the data by calls of their own, and each call ends with giving back a reference to the
 * map's file, a fully ordered atomic operation.
 *
 * internal/bpfobj/litmus_test.go checks this: it takes the accesses from the compiled functions, and tries all orders
 * that the architecture allows.
 */
static __always_inline __u32 latch_begin(const __u32 *seq)
{
	__u32 now = *(volatile const __u32 *)seq;

	fence();
	return now;
}

/*
 * For an odd counter it returns the even number before, which seq_same never finds again. A branch would cost more.
 */
static __always_inline __u32 seq_begin(const __u32 *seq)
{
	return latch_begin(seq) & ~1U;
}

/* Whether all that was loaded since seq_begin or latch_begin belongs together. */
static __always_inline bool seq_same(const __u32 *seq, __u32 begin)
{
	fence();
	return *(volatile const __u32 *)seq == begin;
}

/* The writer's part. Writers exclude each other by a lock. A writer that has died leaves the counter odd. */
static __always_inline void seq_write_begin(__u32 *seq)
{
	*(volatile __u32 *)seq = *(volatile __u32 *)seq | 1;
	fence();
}

static __always_inline void seq_write_end(__u32 *seq)
{
	fence();
	*(volatile __u32 *)seq = *(volatile __u32 *)seq + 1;
}

#endif
