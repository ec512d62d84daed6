// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "filter_count.h"
#include "filter_limit.h"
#include "filter_load.h"
#include "filter_look.h"
#include "filter_rules.h"
#include "filter_set.h"
#include "filter_syn.h"
#include "filter_top.h"

/* What is on. Fixed at load time; the rest of the program is then not there. */
const volatile bool filter_looks; /* something asks for addresses or ports */
const volatile bool filter_ruled; /* there are rules */

/* rx of the same data plane. Writer: datapath, before the program is attached. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} filter_rest SEC(".maps");

/*
 * In front of rx on an interface: what it drops costs nothing more. Rules and services come and go
 * with another program in its place, so no packet meets half of a change.
 */
SEC("xdp.frags")
int filter(struct xdp_md *ctx)
{
	struct look look = {};
	__u32 answer = 0, reason;

	if (filter_looks)
		look_at(ctx, &look);
	if (filter_top_by)
		filter_top(ctx, &look);
	if (filter_ruled)
		answer = filter_rules(ctx, &look);
	reason = answer & FILTER_REASON;
	if (filter_protects && !reason) {
		answer = filter_syn(ctx, &look);
		if (answer)
			return filter_leave(ctx, answer & FILTER_REASON,
					    answer >> FILTER_LEN_SHIFT
						    ?: bpf_xdp_get_buff_len(ctx));
	}
	if (reason && reason != FILTER_PASS)
		return filter_leave(ctx, reason, answer >> FILTER_LEN_SHIFT);
	bpf_tail_call(ctx, &filter_rest, 0);
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
