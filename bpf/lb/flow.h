/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_FLOW_H
#define CULVERT_LB_FLOW_H

#include "maps.h"
#include "core/hash.h"
#include "core/limit.h"

/*
 * The flow table, which all CPUs share: the backend of each flow. A bucket has 512 bytes. Its first cache line has
 * the tags and times of its flows, so that most lookups read this line and one more.
 */
#define LB_WAYS 14

/* A tick is 2^32 ns, 4.3 s. A time has 14 bits of ticks, and below them two bits for the state of the flow. */
#define LB_TICK_SHIFT 32
#define LB_TICKS 0x3fff

enum lb_flow_state {
	LB_FLOW_NEW, /* one packet so far */
	LB_FLOW_OPEN, /* of TCP */
	LB_FLOW_CLOSING, /* FIN or RST seen; the time is that of the first one */
	LB_FLOW_UDP,
};

/* Ticks after which an idle open flow may be evicted from a full bucket: half a minute. */
#define LB_SPARE 7

/*
 * Ticks, at least 4.3 s, after which a segment does not belong to the closing any more: even without data it opens the
 * flow again.
 */
#define LB_LINGER 2

struct lb_entry {
	__u64 src[2]; /* address of the client, as struct ip_addr */
	__u32 ports; /* the client's, and the VIP's */
	__u32 vip; /* number */
	__u32 backend;
	__u32 seq; /* see core/seqcount.h; the writer holds the bucket's lock */
};

struct lb_bucket {
	__u16 tag[LB_WAYS]; /* 0: free */
	__u16 time[LB_WAYS]; /* ticks << 2 | state */
	__u32 lock; /* held by a program that inserts a flow or assigns another backend */
	__u32 spare;
	struct lb_entry entry[LB_WAYS];
} __attribute__((aligned(8)));

/* Writer: the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lb_bucket);
} lb_flows SEC(".maps");

/* Keys of lb_limits: flows that begin with a SYN, and other flows. */
#define LB_LIMIT_SYN 0
#define LB_LIMIT_OTHER 1

/* How fast flows are inserted. Writer of interval and burst: lbplane. Writer of due: the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct limit);
} lb_limits SEC(".maps");

/* The key of a flow. */
struct lb_flow {
	__u64 src[2];
	__u32 ports;
	__u32 vip;
	__u64 hash; /* of the fields above, with the secret */
};

static __always_inline void lb_flow_hash(struct lb_flow *f)
{
	__u64 h;

	h = hash_word(lb_secret[0], lb_secret[1], f->src[0]);
	h += hash_word(lb_secret[2], lb_secret[3], f->src[1]);
	h += hash_word(lb_secret[4], lb_secret[5], f->ports | (__u64)f->vip << 32);
	f->hash = hash_mix(h);
}

static __always_inline __u16 lb_tag(__u64 hash)
{
	return hash >> 48 ?: 1;
}

/*
 * The last time that lb_time has read, and above it the jiffy in which it was read. This costs less than to read the
 * clock again.
 */
__u64 lb_clock;

/* The time now, with 0 in place of the state. */
static __always_inline __u16 lb_time(void)
{
	__u64 jiffy = bpf_jiffies64() << 32; /* a load, not a call */
	__u64 last = *(volatile __u64 *)&lb_clock;

	if ((last ^ jiffy) >> 32) {
		last = jiffy | (bpf_ktime_get_coarse_ns() >> LB_TICK_SHIFT & LB_TICKS) << 2;
		*(volatile __u64 *)&lb_clock = last;
	}
	return last;
}

static __always_inline struct lb_bucket *lb_bucket(__u64 hash)
{
	__u32 i = ((hash & 0xffffffff) * lb_buckets) >> 32;

	return bpf_map_lookup_elem(&lb_flows, &i);
}

static __always_inline bool lb_entry_is(const struct lb_entry *e, const struct lb_flow *f)
{
	return e->src[1] == f->src[1] && e->ports == f->ports && e->src[0] == f->src[0] &&
	       e->vip == f->vip;
}

/* Marks the 16-bit lanes of w that are 0, by their top bits. Lanes above the lowest of them may be marked wrongly. */
static __always_inline __u64 lb_zeros(__u64 w)
{
	return (w - 0x0001000100010001ULL) & ~w & 0x8000800080008000ULL;
}

/* The number of the lowest marked lane. There is no branch, because the verifier would follow it for each lane. */
static __always_inline __u32 lb_lane(__u64 zeros)
{
	return ((zeros & -zeros) >> 15) * 0x0000000100020003ULL >> 48 & 3;
}

/* The first way that has the tag, LB_WAYS for none. */
static __always_inline __u32 lb_way_of_tag(const struct lb_bucket *b, __u16 tag)
{
	const any64 *words = (const any64 *)b;
	__u64 all = tag * 0x0001000100010001ULL;
	__u64 zeros;

	zeros = lb_zeros(words[0] ^ all);
	if (zeros)
		return lb_lane(zeros);
	zeros = lb_zeros(words[1] ^ all);
	if (zeros)
		return 4 + lb_lane(zeros);
	zeros = lb_zeros(words[2] ^ all);
	if (zeros)
		return 8 + lb_lane(zeros);
	zeros = lb_zeros(words[3] ^ all) & 0x80008000; /* the upper lanes are times */
	if (zeros)
		return 12 + lb_lane(zeros);
	return LB_WAYS;
}

/*
 * The way that a flow takes if it is free. Most flows have theirs, and are found without a look at the other tags. The bits
 * are those of the hash that neither the bucket nor the tag depends on.
 */
static __always_inline __u32 lb_way_preferred(__u64 hash)
{
	__u32 way = (hash >> 32 & 0xffff) * LB_WAYS >> 16;

	/* The compiler knows that it is below LB_WAYS, and the verifier of Linux 6.1 has to see a check. */
	barrier_var(way);
	return way;
}

/* Returns the backend of an entry; 0 if the entry is another flow's, or is being written. */
static __always_inline __u32 lb_entry_read(const struct lb_entry *e, const struct lb_flow *f)
{
	__u32 seq = seq_begin(&e->seq);
	__u32 id;

	if (!lb_entry_is(e, f))
		return 0;
	id = *(volatile const __u32 *)&e->backend;
	return seq_same(&e->seq, seq) ? id : 0;
}

/* The result of lb_flow_lookup: the backend in 32 bits, above it the time in 16 bits, and above that the way. */
#define LB_FOUND(id, time, way) ((id) | (__u64)(time) << 32 | (__u64)(way) << 48)

/* Walks a bucket in which several flows have the tag. */
static __noinline __u64 lb_flow_scan(const struct lb_bucket *b, const struct lb_flow *f)
{
	__u16 tag = lb_tag(f->hash);
	__u32 i, id;

	for (i = 0; i < LB_WAYS; i++) {
		if (b->tag[i] != tag)
			continue;
		id = lb_entry_read(&b->entry[i], f);
		if (id)
			return LB_FOUND(id, b->time[i], i);
	}
	return 0;
}

/*
 * Returns the backend of a flow, 0 if the table has none. It is a global function, as others here: the verifier checks
 * it once, and not again for each path to a call.
 */
__noinline __u64 lb_flow_lookup(const struct lb_flow *f)
{
	const struct lb_bucket *b;
	__u32 way, id;

	if (!lb_on || !f)
		return 0;
	b = lb_bucket(f->hash);
	if (!b)
		return 0;
	way = lb_way_of_tag(b, lb_tag(f->hash));
	if (way >= LB_WAYS)
		return 0;
	id = lb_entry_read(&b->entry[way], f);
	if (id)
		return LB_FOUND(id, b->time[way], way);
	return lb_flow_scan(b, f);
}

/* As lb_flow_lookup, without a call if the preferred way is the flow's, or the first that has the tag, as for most flows. */
static __always_inline __u64 lb_flow_lookup_fast(const struct lb_flow *f)
{
	const struct lb_bucket *b = lb_bucket(f->hash);
	__u32 way, id;

	if (!b)
		return 0;
	way = lb_way_preferred(f->hash);
	if (b->tag[way] != lb_tag(f->hash))
		way = lb_way_of_tag(b, lb_tag(f->hash));
	if (way >= LB_WAYS)
		return 0;
	id = lb_entry_read(&b->entry[way], f);
	return id ? LB_FOUND(id, b->time[way], way) : lb_flow_lookup(f);
}

/* 1 if a is less than b, without a branch. Both have 31 bits at most. */
static __always_inline __u32 lb_less(__u32 a, __u32 b)
{
	__u32 less = a - b;

	barrier_var(less);
	return less >> 31;
}

/* The most ticks by which a time may be ahead of the clock that another CPU has read. */
#define LB_SKEW 16

/* Ticks since the last packet of a flow. It is 0 for a time that is ahead of now. */
static __always_inline __u32 lb_age(__u16 time, __u16 now)
{
	__u32 age = (__u16)(now - (time & ~3)) >> 2;

	return age & -lb_less(age, LB_TICKS - LB_SKEW);
}

/* Whether a flow has been idle for longer than its state allows. Every state allows the present tick. */
static __always_inline bool lb_time_expired(__u16 time, __u16 now)
{
	return (time ^ now) & ~3 && lb_age(time, now) >= lb_idle[time & 3];
}

#endif
