/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_REASON_H
#define CULVERT_CORE_REASON_H

#include "reasons.h"

/*
 * Every packet leaves the pipeline for a reason. NAME/reasons.h has the reasons of a stage, a line each:
 *
 *   R(verdict, NAME, "the sentence that explains it to users")
 *
 * The line defines the constant verdict_NAME. Status, metrics and documents call the reason "name". What happens to the
 * packet follows from the verdict alone.
 */
enum verdict {
	VERDICT_PASS, /* to the kernel, as if culvert were not there; never limited */
	VERDICT_PUNT, /* to the slow path, which answers; each reason has a rate */
	VERDICT_LIMITED, /* dropped: a punt that was over its rate. No stage returns it */
	VERDICT_DROP, /* dropped, because the slow path would drop it without an answer */
	VERDICT_FWD, /* redirected to the interface that the stage has named */
	VERDICT_XMIT, /* sent back by the interface that it came in by: an answer */
};

/* A reason is its verdict and, in the lower bits, its index. Counters and limits are kept by index. */
#define REASON_BITS 9
#define REASON(verdict, index) ((verdict) << REASON_BITS | (index))
#define REASON_INDEX(reason) ((reason) & ((1 << REASON_BITS) - 1))

/* The first reason of each verdict, for comparisons. */
#define REASON_PUNT REASON(VERDICT_PUNT, 0)
#define REASON_LIMITED REASON(VERDICT_LIMITED, 0)
#define REASON_DROP REASON(VERDICT_DROP, 0)
#define REASON_FWD REASON(VERDICT_FWD, 0)
#define REASON_XMIT REASON(VERDICT_XMIT, 0)

/* Core and each stage have a block of NAME_ROOM indexes. Index 0 stands for no reason. */
#define REASON_BLOCK(name, NAME) BLOCK_##NAME, BLOCK_##NAME##_LAST = BLOCK_##NAME + NAME##_ROOM - 1,
#define REASON_LISTS(LIST) LIST(core, CORE) FRONTS(LIST) STAGES(LIST)

enum reason_block {
	BLOCK_NONE,
	REASON_LISTS(REASON_BLOCK)
	/* REASON_MAX is the number of indexes. A punt over its rate is counted at index + REASON_MAX. */
	REASON_MAX,
	REASON_SLOTS = 2 * REASON_MAX,
};

#define REASON_INDEXED(verdict, NAME, text) INDEX_##verdict##_##NAME,
#define REASON_INDEXES(name, NAME) \
	INDEX_##NAME##_BEGIN = BLOCK_##NAME - 1, NAME##_REASONS(REASON_INDEXED) INDEX_##NAME##_END,

enum reason_index {
	REASON_LISTS(REASON_INDEXES)
};

#define REASON_FITS(name, NAME)                                                    \
	_Static_assert((int)INDEX_##NAME##_END <= (int)BLOCK_##NAME + NAME##_ROOM, \
		       "bpf/" #name "/reasons.h has more reasons than " #NAME "_ROOM");
REASON_LISTS(REASON_FITS)
_Static_assert(REASON_SLOTS <= 1 << REASON_BITS, "REASON_BITS have no room for all indexes");

#define REASON_VALUE(verdict, NAME, text) \
	verdict##_##NAME = REASON(VERDICT_##verdict, INDEX_##verdict##_##NAME),
#define REASON_VALUES(name, NAME) NAME##_REASONS(REASON_VALUE)

/* User space learns names, verdicts and numbers from the BTF of this enum. */
enum reason {
	REASON_NONE = 0, /* not the stage's packet: ask the next stage */
	REASON_LISTS(REASON_VALUES)
};

#endif
