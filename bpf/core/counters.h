/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_COUNTERS_H
#define CULVERT_CORE_COUNTERS_H

#include "port.h"
#include "reason.h"

struct counter {
	__u64 packets;
	__u64 bytes;
};

/* Key: slot * REASON_SLOTS + index of the reason. Writer: the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_PORTS * REASON_SLOTS);
	__type(key, __u32);
	__type(value, struct counter);
} counters SEC(".maps");

static __always_inline void count(__u32 slot, __u32 reason, __u64 bytes)
{
	__u32 key = slot * REASON_SLOTS + REASON_INDEX(reason);
	struct counter *c = bpf_map_lookup_elem(&counters, &key);

	if (c) {
		c->packets++;
		c->bytes += bytes;
	}
}

#endif
