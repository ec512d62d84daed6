/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_CLOCK_H
#define CULVERT_CORE_CLOCK_H

/* CLOCK_TAI minus CLOCK_REALTIME, ns. */
volatile __u64 tai_offset_ns;

/* The last reading of the clock on one CPU. */
struct wall_clock {
	__u64 tick; /* jiffies at the last reading */
	__u64 now; /* CLOCK_REALTIME at the last reading, ns */
};

static __always_inline __u64 wall_now(void)
{
	return bpf_ktime_get_tai_ns() - tai_offset_ns;
}

/* CLOCK_REALTIME in ns, at most a tick old. Reading the clock source would cost as much as forwarding a packet. */
static __always_inline __u64 wall_recent(struct wall_clock *w)
{
	__u64 tick = bpf_jiffies64(); /* a load, not a call */

	if (w->tick != tick) {
		w->now = wall_now();
		w->tick = tick;
	}
	return w->now;
}

/* The last reading of the coarse clock on a CPU. Writer: the programs. */
struct coarse_clock {
	__u64 tick; /* jiffies at the last reading */
	__u64 now; /* CLOCK_MONOTONIC_COARSE at the last reading, ns */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct coarse_clock);
} coarse_clocks SEC(".maps");

/* CLOCK_MONOTONIC_COARSE in ns, read once in a tick: it does not change more often. */
static __always_inline __u64 coarse_recent(void)
{
	__u64 tick = bpf_jiffies64();
	struct coarse_clock *c;
	__u32 key = 0;

	c = bpf_map_lookup_elem(&coarse_clocks, &key);
	if (!c)
		return bpf_ktime_get_coarse_ns();
	if (c->tick != tick) {
		c->now = bpf_ktime_get_coarse_ns();
		c->tick = tick;
	}
	return c->now;
}

/*
 * Whether a time, ns since the epoch, has passed. recent is from wall_recent. The clock is read only for a time that is
 * at most a second ahead of recent.
 */
static __always_inline bool wall_past(__u64 time, __u64 recent)
{
	if (time > recent + 1000000000ULL)
		return false;
	return time < wall_now();
}

#endif
