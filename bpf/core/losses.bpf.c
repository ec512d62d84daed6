// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "stages.h"

#include "cpumap.h"
#include "net_device.h"
#include "port.h"

/*
 * Counts packets that are lost after the verdict, and packets that are lost before it on the way to a worker. The
 * kernel reports both in tracepoints only. A loss is counted for the ingress interface.
 */

enum loss {
	LOSS_REDIRECT, /* xdp_redirect_err: the target does not take frames, or is gone */
	LOSS_TRANSMIT, /* xdp_devmap_xmit: the target's ring is full or its peer does not listen */
	LOSS_EXCEPTION, /* xdp_exception: the driver could not carry out the verdict */
	LOSS_WORKER_QUEUE, /* xdp_cpumap_enqueue: the worker's queue is full; no verdict was given */
	LOSS_WORKER, /* xdp_cpumap_kthread: no memory for a packet that the worker passes on */
	LOSS_COUNT,
};

const enum loss *loss_names __attribute__((unused));

/* Number of packets. Key: slot * LOSS_COUNT + loss. Writer: the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_PORTS * LOSS_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} losses SEC(".maps");

/*
 * The generation of these programs that counts. Two generations are attached while one takes over from the other. Both
 * stay attached if the process dies meanwhile. Writer: datapath.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} losses_by SEC(".maps");

/*
 * The generation that has counted the last event on this CPU, or 0. The kernel runs the programs of all generations on each
 * event, those with lower numbers first. If losses_by changes to a later one between two of them, that one must not count the
 * event again. A program that does not count any more clears its own mark. Writers: the programs, and datapath after it has
 * changed losses_by.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} losses_counted SEC(".maps");

/* The generation of this object. */
const volatile __u32 generation;

/* Inode of the network namespace of the ports. Indexes of interfaces are unique only inside it. */
const volatile __u32 netns;

/* IDs of the workers' map, and of the former one while its queues are being emptied; 0: none. */
const volatile __u32 worker_map;
const volatile __u32 former_worker_map;

/* The number of possible CPUs, for cpumap_enqueued. */
const volatile __u32 cpu_count = 1;

/*
 * Whether this generation counts the event. All generations call it for the same events, in the order in which they
 * were attached.
 */
static __always_inline bool in_force(void)
{
	__u32 zero = 0;
	__u32 *by, *counted;

	by = bpf_map_lookup_elem(&losses_by, &zero);
	counted = bpf_map_lookup_elem(&losses_counted, &zero);
	if (!by || !counted)
		return false;
	if (*by != generation) {
		if (*counted == generation)
			*counted = 0;
		return false;
	}
	if (*counted && *counted < generation) {
		*counted = 0;
		return false;
	}
	*counted = generation;
	return true;
}

static __always_inline bool lose_at(__u32 ifindex, __u32 loss, __u64 packets)
{
	struct port *port = port_at(ifindex);
	__u32 key;
	__u64 *n;

	if (!port)
		return false;
	key = (port->slot - 1) * LOSS_COUNT + loss;
	n = bpf_map_lookup_elem(&losses, &key);
	if (n)
		*n += packets;
	return true;
}

static __always_inline void lose(const struct net_device *dev, __u32 loss, __u64 packets)
{
	if (BPF_CORE_READ(dev, nd_net.net, ns.inum) == netns && in_force())
		lose_at(BPF_CORE_READ(dev, ifindex), loss, packets);
}

static __always_inline bool our_workers(__u32 map)
{
	return map && (map == worker_map || map == former_worker_map) && in_force();
}

SEC("raw_tp/xdp_redirect_err")
int redirect_err(struct bpf_raw_tracepoint_args *ctx)
{
	/* In generic mode a worker's queue is one of the targets. */
	lose((void *)ctx->args[0],
	     (__u32)ctx->args[4] == BPF_MAP_TYPE_CPUMAP ? LOSS_WORKER_QUEUE : LOSS_REDIRECT, 1);
	return 0;
}

SEC("raw_tp/xdp_devmap_xmit")
int devmap_xmit(struct bpf_raw_tracepoint_args *ctx)
{
	int drops = ctx->args[3];

	if (drops > 0)
		lose((void *)ctx->args[0], LOSS_TRANSMIT, drops);
	return 0;
}

SEC("raw_tp/xdp_exception")
int exception(struct bpf_raw_tracepoint_args *ctx)
{
	/* Some drivers report a failed redirect here too. redirect_err has counted it. */
	if ((__u32)ctx->args[2] != XDP_REDIRECT)
		lose((void *)ctx->args[0], LOSS_EXCEPTION, 1);
	return 0;
}

SEC("raw_tp/xdp_cpumap_enqueue")
int cpumap_enqueue(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 drops = ctx->args[2];
	struct enqueued *last;
	__u32 zero = 0;

	if (!drops || !our_workers(ctx->args[0]))
		return 0;
	last = bpf_map_lookup_elem(&cpumap_enqueued, &zero);
	if (last)
		lose_at(last->from, LOSS_WORKER_QUEUE, drops);
	return 0;
}

static long lose_on(__u32 cpu, __u32 *drops)
{
	struct enqueued *last;
	__u32 zero = 0;

	last = bpf_map_lookup_percpu_elem(&cpumap_enqueued, &zero, cpu);
	return last && lose_at(last->from, LOSS_WORKER, *drops);
}

/* A batch may have packets from several interfaces. It is counted for the first interface that is found. */
SEC("raw_tp/xdp_cpumap_kthread")
int cpumap_kthread(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 drops = ctx->args[2];

	if (drops && our_workers(ctx->args[0]))
		bpf_loop(cpu_count, lose_on, &drops, 0);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
