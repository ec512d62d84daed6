/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Loss, duplicates and reordering of each flow, from the sequence numbers in stamps. A packet is reordered if its
 * number is smaller than one that has come (RFC 4737, 3.3), and a duplicate if its own number has come. A ring of bits
 * records which numbers have come. It is cleared a word at a time as the largest number grows, as for the replay
 * windows of RFC 6479.
 */
#ifndef CULVERT_BENCH_ORDER_H
#define CULVERT_BENCH_ORDER_H

#include "bench.h"
#include "stamp.h"

#define ORDER_WORDS 16
/* At least this far below the largest number it is known which numbers have come. */
#define ORDER_WINDOW (64 * (ORDER_WORDS - 1))

/*
 * What has come of one flow. The lock keeps the window and the counters consistent, whichever CPUs the packets of the
 * flow arrive on.
 */
struct flow_state {
	struct bpf_spin_lock lock;
	__u32 first; /* number of the first packet */
	__u32 largest;
	__u32 pad;
	__u64 packets;
	__u64 advance; /* from the first number to the largest */
	__u64 duplicates;
	__u64 reordered;
	__u64 late; /* of the reordered ones: too far below the largest to tell whether they are duplicates */
	__u64 early; /* numbers below that of the first packet */
	__u64 come[ORDER_WORDS];
};

/* Set before loading: how many flows there are. 0: frames have no stamps. */
const volatile __u32 flow_count = 0;

/* Written by: the sink; internal/bench resets it between runs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct flow_state);
	__uint(max_entries, 1);
} flows SEC(".maps");

/* Makes seq the largest number of the flow. */
static __always_inline void order_advance(struct flow_state *f, __u32 seq)
{
	__u32 from = f->largest / 64, steps, i;

	steps = (seq / 64 - from) & (STAMP_SEQ_MASK / 64);
	for (i = 1; i <= ORDER_WORDS; i++)
		if (i <= steps)
			f->come[(from + i) % ORDER_WORDS] = 0;
	f->largest = seq;
}

/* Records a packet. The caller holds the lock. */
static __always_inline void order_note(struct flow_state *f, __u32 seq)
{
	__u32 ahead = (seq - f->largest) & STAMP_SEQ_MASK;
	__u32 behind = (f->largest - seq) & STAMP_SEQ_MASK;
	__u64 *word = &f->come[seq / 64 % ORDER_WORDS];
	__u64 bit = 1ULL << seq % 64;

	if (f->packets++ == 0) {
		f->first = f->largest = seq;
		*word = bit;
		return;
	}
	if (ahead && ahead <= STAMP_SEQ_MASK / 2) {
		order_advance(f, seq);
		f->advance += ahead;
		*word |= bit;
		return;
	}
	if (behind > ORDER_WINDOW) {
		f->late++;
	} else if (*word & bit) {
		f->duplicates++;
		return;
	} else {
		*word |= bit;
	}
	f->reordered++;
	if (behind > f->advance)
		f->early++;
}

#endif
