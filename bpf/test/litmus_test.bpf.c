// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

#include "core/lock.h"
#include "core/seqcount.h"

/*
 * For the tests alone: a reader, a writer and a holder of a lock, with the fewest accesses. internal/bpfobj takes the
 * accesses from the compiled functions. It identifies the fields by their offsets from the first argument.
 */
struct litmus {
	__u32 seq;
	__u32 lock;
	__u64 first;
	__u64 second;
};

#define LITMUS_LOAD(x) (*(volatile __u64 *)&(x))
#define LITMUS_STORE(x, v) (*(volatile __u64 *)&(x) = (v))

__noinline int litmus_read(struct litmus *m)
{
	__u64 first, second;
	__u32 seq;

	if (!m)
		return 0;
	seq = seq_begin(&m->seq);
	first = LITMUS_LOAD(m->first);
	second = LITMUS_LOAD(m->second);
	return seq_same(&m->seq, seq) && first == second;
}

__noinline int litmus_write(struct litmus *m)
{
	if (!m)
		return 0;
	seq_write_begin(&m->seq);
	LITMUS_STORE(m->first, 1);
	LITMUS_STORE(m->second, 1);
	seq_write_end(&m->seq);
	return 0;
}

__noinline int litmus_count(struct litmus *m)
{
	if (!m || !lock_take(&m->lock))
		return 0;
	LITMUS_STORE(m->first, LITMUS_LOAD(m->first) + 1);
	lock_give(&m->lock);
	return 1;
}

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct litmus);
} litmus_shared SEC(".maps");

SEC("xdp")
int litmus(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct litmus *m = bpf_map_lookup_elem(&litmus_shared, &zero);

	return litmus_write(m) + litmus_read(m) + litmus_count(m);
}

char _license[] SEC("license") = "Dual BSD/GPL";
