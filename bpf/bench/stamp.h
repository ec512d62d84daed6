/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The stamp that the generator can write into the last 16 bytes of a frame, for the sink to read. It is two 64-bit
 * words in network byte order, here with the most significant bits first:
 *
 *   magic 24 | flow 24 | balance 16
 *   sequence number in the flow 28 | CLOCK_MONOTONIC in ns 36
 *
 * The balance makes the one's complement sum of the stamp equal to that of the bytes that it replaces. So every
 * Internet checksum over them stays right, at even and at odd offsets (RFC 1071, 2). Numbers and times wrap, after 268
 * million packets of a flow and after 68 s: only differences mean something.
 */
#ifndef CULVERT_BENCH_STAMP_H
#define CULVERT_BENCH_STAMP_H

#include <linux/types.h>

#define STAMP_LEN 16
/* The farthest offset of a stamp in a frame, bytes. The verifier needs a bound. */
#define STAMP_AT_MAX 0x7fff
#define STAMP_MAGIC 0x43764cULL
#define STAMP_FLOW_MASK ((1ULL << 24) - 1)
#define STAMP_TIME_BITS 36
#define STAMP_TIME_MASK ((1ULL << STAMP_TIME_BITS) - 1)
#define STAMP_SEQ_BITS 28
#define STAMP_SEQ_MASK ((1U << STAMP_SEQ_BITS) - 1)

/*
 * As it lies in the frame, at any alignment: JITs and verifier allow that on packets. Both words are in network order
 * there.
 */
struct stamp {
	__u64 label;
	__u64 moment;
};

/* The sum of the 16-bit words of v, not folded. */
static __always_inline __u32 stamp_words(__u64 v)
{
	return (__u32)(v >> 48) + (__u32)(v >> 32 & 0xffff) + (__u32)(v >> 16 & 0xffff) +
	       (__u32)(v & 0xffff);
}

/* Makes a stamp whose words add up to sum, 16 bits. */
static __always_inline void stamp_make(struct stamp *s, __u32 flow, __u32 seq, __u64 now_ns,
				       __u32 sum)
{
	__u64 label = STAMP_MAGIC << 40 | (flow & STAMP_FLOW_MASK) << 16;
	__u64 moment = (__u64)seq << STAMP_TIME_BITS | (now_ns & STAMP_TIME_MASK);
	/* The other seven words add up to at most seven times 0xffff, so this is never negative. */
	__u32 balance = sum + 8 * 0xffff - stamp_words(label) - stamp_words(moment);

	balance = (balance & 0xffff) + (balance >> 16);
	balance = (balance & 0xffff) + (balance >> 16);
	s->label = __builtin_bswap64(label | balance);
	s->moment = __builtin_bswap64(moment);
}

#endif
