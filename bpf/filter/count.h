/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_FILTER_COUNT_H
#define CULVERT_FILTER_COUNT_H

#include "core/compiler.h"
#include "core/counters.h"
#include "core/xmit.h"

/* Counters of the filter: two of its own, then two for each rule. Shared with filterplane. */
#define FILTER_SHORT 0 /* packets that end before a field that a rule reads */
#define FILTER_MALFORMED 1 /* packets with inconsistent headers */
#define FILTER_RULE(n) \
	(2 +           \
	 2 * (n)) /* packets that match a rule; the counter behind it has those over the rule's rate */
#define FILTER_MAX_RULES \
	4096 /* twice the number that is in use at most, so that all can be exchanged at once */

/* The place of a rule belongs to its name and does not change with the program. Writer: the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FILTER_RULE(2 * FILTER_MAX_RULES));
	__type(key, __u32);
	__type(value, struct counter);
} filter_counts SEC(".maps");

/* The most places at which one packet is counted: once for each rule, and the filter's own. Shared with filterplane. */
#define FILTER_TRACED (FILTER_MAX_RULES + 2)

/*
 * Added to the reason of a packet that is dropped before any rule has seen it. It is above all places. Shared with
 * filterplane.
 */
#define FILTER_TRACE_REASON 0x10000

const volatile bool filter_tracing;

/*
 * For a tester: the places at which a packet was counted. Element 0 has their number, the others the places in their
 * order. Writers: the tester's program, and the tester, which empties it.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 + FILTER_TRACED);
	__type(key, __u32);
	__type(value, __u32);
} filter_traces SEC(".maps");

static __always_inline void filter_trace(__u32 place)
{
	__u32 at = 0, *to = bpf_map_lookup_elem(&filter_traces, &at);

	if (!to)
		return;
	at = ++*to;
	to = bpf_map_lookup_elem(&filter_traces, &at);
	if (to)
		*to = place;
}

/* Counts the packet at a place of filter_counts. Returns its length, because that costs a call. */
__noinline int filter_hit(struct xdp_md *ctx, __u32 place)
{
	struct counter *c = bpf_map_lookup_elem(&filter_counts, &place);
	__u32 len = bpf_xdp_get_buff_len(ctx);

	if (filter_tracing)
		filter_trace(place);
	if (c) {
		c->packets++;
		c->bytes += len;
	}
	return len;
}

/* The answer of filter_rules: a reason and, above it, the length of the packet. */
#define FILTER_LEN_SHIFT 12
#define FILTER_REASON ((1 << FILTER_LEN_SHIFT) - 1)

/* Ends a packet: counts it for its interface under the reason, and drops or answers it. */
static __always_inline int filter_leave(struct xdp_md *ctx, __u32 reason, __u32 len)
{
	__u32 ifindex = ctx->ingress_ifindex;
	struct port *port = bpf_map_lookup_elem(&ports, &ifindex);

	if (port && port->slot)
		count(port->slot - 1, reason, len);
	return reason < REASON_FWD ? XDP_DROP : xmit(ctx, port);
}

#endif
