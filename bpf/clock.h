/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CLOCK_H
#define CULVERT_CLOCK_H

/* CLOCK_TAI minus CLOCK_REALTIME, ns. */
volatile __u64 tai_offset_ns;

struct wall_clock {
	__u64 tick; /* jiffies at the last reading */
	__u64 now; /* CLOCK_REALTIME at the last reading, ns */
};

/* Writer: the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wall_clock);
} wall_clocks SEC(".maps");

static __always_inline __u64 wall_now(void)
{
	return bpf_ktime_get_tai_ns() - tai_offset_ns;
}

/*
 * CLOCK_REALTIME in ns, at most a tick old: reading the clock source costs as much as forwarding.
 */
static __always_inline __u64 wall_recent(void)
{
	__u64 tick = bpf_jiffies64(); /* a load, not a call */
	struct wall_clock *w;
	__u32 key = 0;

	w = bpf_map_lookup_elem(&wall_clocks, &key);
	if (!w)
		return wall_now();
	if (w->tick != tick) {
		w->now = wall_now();
		w->tick = tick;
	}
	return w->now;
}

/* Whether a time, ns since the epoch, is past. Only one close to recent is worth a new reading. */
static __always_inline bool wall_past(__u64 time, __u64 recent)
{
	if (time > recent + 1000000000ULL)
		return false;
	return time < wall_now();
}

#endif
