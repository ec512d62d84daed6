/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_SEQCOUNT_H
#define CULVERT_CORE_SEQCOUNT_H

#include "fence.h"

/*
 * How to read data that somebody else may be writing: a sequence counter, as the kernel's seqcount_t. (bpf/route/choice.h
 * has elements of two words, of which each tells whether the other belongs to it. Nothing else does without.) A
 * program that meets a writer does not wait, because a process may die while it writes. The program falls back instead:
 * to a hash table, to the kernel, to the slow path. Data without a fallback is kept in a latch (seqcount_latch_t): two
 * versions, of which the lowest bit of the counter names the one to read while the writer changes the other.
 *
 *   reader                                    writer
 *   seq = seq_begin(&x->seq)                  sets the lowest bit of the counter
 *   loads the data                            stores the data
 *   if (!seq_same(&x->seq, seq)) fall back    sets the counter to a higher even number
 *
 * Why it is correct. First case: a load of the data returns what the writer has stored. The writer has made the counter
 * odd before that, with a fence in between. The reader's second load of the counter is behind a fence too, so it
 * returns that odd number or a later one, and seq_same fails. Second case: the reader's first load returns the even
 * number that the writer has stored last. The writer has stored the data before that, with a fence in between, and the
 * reader loads the data behind a fence, so it gets all of it.
 *
 * A latch works in the same way. A reader that has loaded the number that names a version gets all of that version. A
 * reader that gets part of the next write to the version sees that the counter has changed.
 *
 * Fences of writers: programs use those below. Processes that write to mapped memory store all of it with sync/atomic.
 * Each such store is a release (arm64: STLR), and releases are observed in their order. Processes that use bpf(2) write
 * the counter and the data by calls of their own. Each call ends by giving back a reference to the map's file, which is
 * a fully ordered atomic operation.
 *
 * internal/bpfobj/litmus_test.go checks this: it takes the accesses from the compiled functions, and tries all orders
 * that the architecture allows.
 */

/* Begins to read a latch. The lowest bit of the result names the version to read. */
static __always_inline __u32 latch_begin(const __u32 *seq)
{
	__u32 now = *(volatile const __u32 *)seq;

	fence();
	return now;
}

/*
 * Begins to read. For an odd counter it returns the even number below, which the counter never has again, so seq_same
 * fails. A branch would cost more.
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

/* Begins to write. Writers exclude each other by a lock. A writer that has died leaves the counter odd. */
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
