/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_WORKER_H
#define CULVERT_CORE_WORKER_H

#include "cpumap.h"
#include "packet.h"

/*
 * Spreads packets over worker CPUs. Only packets that a stage may take are enqueued. The others stay on the CPU that
 * they came in on, so that the kernel gets them with the checksum and the VLAN tag that the hardware has found: a
 * CPUMAP loses both.
 */

/* The most workers. */
#define MAX_WORKERS 64

/* The number of workers; 0: none. */
const volatile __u32 worker_count;
/* Whether packets go to the workers in turn, and not by flow. Only the bench sets it, to show the effect. */
const volatile bool worker_turns;
/* The CPU of each worker: the key of its entry in worker_cpus. */
const volatile __u32 worker_cpu[MAX_WORKERS];

/* Key: CPU. An entry has a queue, a kernel thread bound to the CPU, and the program worker. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bpf_cpumap_val);
} worker_cpus SEC(".maps");

/* Whether another CPU has ever enqueued packets for a worker. Key: number of the worker. Writer: the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_WORKERS);
	__type(key, __u32);
	__type(value, __u32);
} worker_fed SEC(".maps");

/*
 * Whether this CPU processes the packet at once. It does if it is the CPU of the worker and no other CPU has ever
 * enqueued packets for the worker: the queue has no packet of the flow then. The packet skips the queue and is still in
 * the cache. Once another CPU has enqueued packets, reception may have moved from there to here, and a packet that
 * skips the queue could overtake others of its flow.
 */
static __always_inline bool process_at_once(__u32 i, __u32 cpu)
{
	__u32 *fed = bpf_map_lookup_elem(&worker_fed, &i);

	if (!fed)
		return false;
	if (cpu == bpf_get_smp_processor_id())
		return !*(volatile __u32 *)fed;
	if (!*(volatile __u32 *)fed)
		*(volatile __u32 *)fed = 1;
	return false;
}

/*
 * Enqueues the packet for the worker of its flow, so that a flow stays on one CPU. False if this CPU has to process it.
 */
static __always_inline bool cpumap_enqueue(struct xdp_md *ctx)
{
	/*
	 * volatile keeps these loads apart from others. clang would truncate a shared value, which the verifier refuses
	 * for a pointer.
	 */
	const void *data = (void *)(long)*(volatile __u32 *)&ctx->data;
	const void *data_end = (void *)(long)*(volatile __u32 *)&ctx->data_end;
	struct cpumap_enqueued *last;
	__u32 zero = 0;
	__u32 i, cpu;
	__u64 hash;

	last = bpf_map_lookup_elem(&cpumap_enqueued, &zero);
	if (!last)
		return false;
	if (worker_turns) {
		i = last->turn;
		last->turn = i + 1 < worker_count ? i + 1 : 0;
	} else {
		if (!STAGE_FLOW_HASH(data, data_end, &hash))
			return false;
		i = ((hash & 0xffffffff) * worker_count) >> 32;
	}
	if (i >= MAX_WORKERS)
		return false;
	cpu = worker_cpu[i];
	if (!worker_turns && process_at_once(i, cpu))
		return false;
	last->from = ctx->ingress_ifindex;
	return bpf_redirect_map(&worker_cpus, cpu, 0) == XDP_REDIRECT;
}

#endif
