/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_WORKER_H
#define CULVERT_CORE_WORKER_H

#include "cpumap.h"
#include "flow.h"

/*
 * Spreads packets over worker CPUs. Only packets that a stage may forward are enqueued. The others stay on the CPU that
 * they came in on, so that what is for this host waits behind nothing, and the kernel gets it as the card has left it: a
 * CPUMAP loses what is not in the frame. Of the packets that are enqueued and that the kernel gets in the end, the
 * frame has all that matters, by PORT_STAYS and PORT_UNFINISHED.
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

/* The addresses of this host. Packets to them are for the kernel. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bloom);
} worker_own SEC(".maps");

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
 * Whether a CPUMAP may carry packets of a protocol from an interface with PORT_UNFINISHED. Of others nobody knows which
 * checksums they have: SCTP has one of its own, and tunnels have packets in them.
 */
static __always_inline bool worker_carries(__u8 proto)
{
	return proto == IPPROTO_TCP || proto == IPPROTO_UDP || proto == IPPROTO_ICMP ||
	       proto == IPPROTO_ICMPV6 || proto == IPPROTO_FRAGMENT;
}

/* Hashes the flow of an IP packet. False if it stays on this CPU. */
static __always_inline bool worker_ip_hash(const struct port *port, const void *data,
					   const void *data_end, __u64 *hash)
{
	const struct bloom *own;
	struct flow_ip f = {};
	__u32 zero = 0;

	if (!flow_of_ip(data, data_end, &f) || (f.tagged && port->spread & PORT_TAGS_STAY) ||
	    (port->spread & PORT_UNFINISHED && !worker_carries(f.proto)))
		return false;
	own = bpf_map_lookup_elem(&worker_own, &zero);
	if (!own || bloom_has(own, f.to) || !STAGE_SPREADS(f.to))
		return false;
	*hash = flow_sum(f.hash);
	return true;
}

/* Hashes the flow of a packet. False if it stays on this CPU. */
static __always_inline bool worker_hash(struct xdp_md *ctx, __u64 *hash)
{
	/*
	 * volatile keeps these loads apart from others. clang would truncate a shared value, which the verifier refuses
	 * for a pointer.
	 */
	const void *data = (void *)(long)*(volatile __u32 *)&ctx->data;
	const void *data_end = (void *)(long)*(volatile __u32 *)&ctx->data_end;
	__u32 ifindex = ctx->ingress_ifindex;
	const struct port *port = bpf_map_lookup_elem(&ports, &ifindex);

	if (!port || !port->slot || port->spread & PORT_STAYS || data + ETH_HLEN > data_end)
		return false;
	/* As in parse(): what is not for this interface is left to the kernel. */
	if (LOAD32(data) != LOAD32(port->mac) || LOAD16(data + 4) != port->mac[2])
		return false;
	switch (STAGE_FLOW_HASH(data, data_end, hash)) {
	case FLOW_HASHED:
		return true;
	case FLOW_STAYS:
		return false;
	default:
		return STAGE_SPREADS_IP && worker_ip_hash(port, data, data_end, hash);
	}
}

/*
 * Enqueues the packet for the worker of its flow, so that a flow stays on one CPU. Returns 0 if this CPU has to process
 * it. A call of its own keeps the registers and the stack of programs without workers as they are.
 */
static __noinline int cpumap_enqueue(struct xdp_md *ctx)
{
	struct enqueued *last;
	__u32 zero = 0;
	__u32 i, cpu;
	__u64 hash = 0;

	last = bpf_map_lookup_elem(&cpumap_enqueued, &zero);
	if (!last)
		return 0;
	if (worker_turns) {
		i = last->turn;
		last->turn = i + 1 < worker_count ? i + 1 : 0;
	} else {
		if (!worker_hash(ctx, &hash))
			return 0;
		i = ((hash & 0xffffffff) * worker_count) >> 32;
	}
	if (i >= MAX_WORKERS)
		return 0;
	cpu = worker_cpu[i];
	if (!worker_turns && process_at_once(i, cpu))
		return 0;
	last->from = ctx->ingress_ifindex;
	last->packets++;
	return bpf_redirect_map(&worker_cpus, cpu, 0) == XDP_REDIRECT;
}

#endif
