/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_CPUMAP_H
#define CULVERT_CORE_CPUMAP_H

struct cpumap_enqueued {
	__u32 from; /* interface of the last packet */
	__u32 turn; /* with worker_turns, the next worker's number */
};

/*
 * What this CPU has handed over last. It empties its batches at the end of each poll, so what a full
 * queue refuses came in by that interface. Writer: the programs.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpumap_enqueued);
} cpumap_enqueued SEC(".maps");

#endif
