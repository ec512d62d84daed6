/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_FILTER_COUNT_H
#define CULVERT_FILTER_COUNT_H

#include "core/capture.h"
#include "core/compiler.h"
#include "core/counters.h"
#include "core/sflow.h"
#include "core/xmit.h"

/* Counters of the filter: two of its own, then two for each rule. Shared with filterplane. */
#define FILTER_SHORT 0 /* packets that end before a field that a rule reads */
#define FILTER_MALFORMED 1 /* packets with inconsistent headers */
/* Packets that match rule n. The next counter has those of them that were over the rule's rate. */
#define FILTER_RULE(n) (2 + 2 * (n))

/* The most rules of a filter. filter_counts has room for twice as many, so that all can be exchanged at once. */
#define FILTER_MAX_RULES 4096

/*
 * A rule has the same counters in every program, because they belong to its name. Key: index of the counter, above.
 * Writer: the programs.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FILTER_RULE(2 * FILTER_MAX_RULES));
	__type(key, __u32);
	__type(value, struct counter);
} filter_counts SEC(".maps");

/*
 * The most counters that one packet is counted under: one for each rule, and the two of the filter. Shared with
 * filterplane.
 */
#define FILTER_TRACED (FILTER_MAX_RULES + 2)

/*
 * A packet that is dropped before any rule sees it is recorded in filter_traces as this plus its reason. The sum is
 * larger than any index of a counter. Shared with filterplane.
 */
#define FILTER_TRACE_REASON 0x10000

const volatile bool filter_tracing;

/*
 * For tests of rules: the counters that a packet was counted under. Element 0 is their number. The others are their
 * indexes, in the order in which they were counted. Writers: the program that is tested, and the tester, which clears
 * it.
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

/*
 * Counts the packet in filter_counts. place is the index of the counter. Returns the length of the packet, because
 * finding it out costs a call.
 */
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

/* The result of filter_rules: a reason, and above it the length of the packet. */
#define FILTER_LEN_SHIFT 12
#define FILTER_REASON ((1 << FILTER_LEN_SHIFT) - 1)

/* The way out of the filter: counts the packet for its interface under the reason, and drops it or sends it back. */
static __always_inline int filter_leave(struct xdp_md *ctx, __u32 reason, __u32 len)
{
	__u32 ifindex = ctx->ingress_ifindex, slot = 0;
	struct port *port = bpf_map_lookup_elem(&ports, &ifindex);

	capture_front_out(ctx, reason);
	if (port) {
		slot = port->slot;
		if (!slot) { /* not port_at(), which would read slot twice */
			port = port_bond(port);
			if (port)
				slot = port->slot;
		}
	}
	if (slot) {
		sflow_front_out(ctx, port, reason);
		count(slot - 1, reason, len);
	}
	if (reason < REASON_FWD)
		return XDP_DROP;
	return xmit(port);
}

#endif
