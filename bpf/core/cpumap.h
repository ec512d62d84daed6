/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_CPUMAP_H
#define CULVERT_CORE_CPUMAP_H

struct enqueued {
	__u32 from; /* ifindex that the last packet came in by */
	__u32 turn; /* with worker_turns, the number of the next worker */
	__u64 packets; /* enqueued by this CPU so far, those that a full queue refuses included */
};

/*
 * The last packet that this CPU has enqueued for a worker. A CPU flushes its batches at the end of each NAPI poll, so
 * packets that a full queue refuses came in by the interface of the last one. Writer: the programs.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct enqueued);
} cpumap_enqueued SEC(".maps");

#endif
