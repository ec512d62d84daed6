// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Counts frames that XDP programs sent to a device and that the device did not take. The device's own counters do not
 * serve: several CPUs may add to them at once, and some additions are lost then.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "core/net_device.h"

/* A device. Indexes are unique only inside a network namespace. */
struct place {
	__u32 netns; /* inode of the namespace */
	__u32 ifindex;
};

const struct place *place_type __attribute__((unused));

/* Frames that each device of interest has not taken. Written by: internal/bench (keys), the program (counts). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct place);
	__type(value, __u64);
	__uint(max_entries, 8);
} refused SEC(".maps");

/* Arguments: device received on, device sent to, frames taken, frames not taken, error. */
SEC("raw_tp/xdp_devmap_xmit")
int bench_refused(struct bpf_raw_tracepoint_args *ctx)
{
	const struct net_device *to = (void *)ctx->args[1];
	int drops = (int)ctx->args[3];
	struct place key;
	__u64 *packets;

	if (drops <= 0)
		return 0;
	key.ifindex = BPF_CORE_READ(to, ifindex);
	key.netns = BPF_CORE_READ(to, nd_net.net, ns.inum);
	packets = bpf_map_lookup_elem(&refused, &key);
	if (packets)
		__sync_fetch_and_add(packets, drops);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
