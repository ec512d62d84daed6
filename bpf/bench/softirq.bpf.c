// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Adds up how long each CPU spends in the soft interrupt that receives packets. The kernel samples its own figure at
 * clock ticks, and a short run has few of them.
 */
#include "bench.h"

/* The number of the soft interrupt that receives packets: enum in include/linux/interrupt.h. */
#define NET_RX_SOFTIRQ 3

/* A CPU's time in that soft interrupt so far. */
struct softirq_time {
	__u64 since_ns; /* when the present one began, 0 if none runs */
	__u64 ns;
	__u64 runs;
};

/* Written by: the programs below. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct softirq_time);
	__uint(max_entries, 1);
} softirq_times SEC(".maps");

/* The tracepoint irq:softirq_entry, which has the number as its argument. */
SEC("raw_tp/softirq_entry")
int bench_softirq_entry(struct bpf_raw_tracepoint_args *ctx)
{
	struct softirq_time *t;
	__u32 zero = 0;

	if (ctx->args[0] != NET_RX_SOFTIRQ)
		return 0;
	t = bpf_map_lookup_elem(&softirq_times, &zero);
	if (t)
		t->since_ns = bpf_ktime_get_ns();
	return 0;
}

/* The tracepoint irq:softirq_exit. */
SEC("raw_tp/softirq_exit")
int bench_softirq_exit(struct bpf_raw_tracepoint_args *ctx)
{
	struct softirq_time *t;
	__u32 zero = 0;

	if (ctx->args[0] != NET_RX_SOFTIRQ)
		return 0;
	t = bpf_map_lookup_elem(&softirq_times, &zero);
	if (!t || !t->since_ns)
		return 0;
	t->ns += bpf_ktime_get_ns() - t->since_ns;
	t->since_ns = 0;
	t->runs++;
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
