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

#include "stages.h"

#include "bond.h"
#include "count.h"
#include "limit.h"
#include "load.h"
#include "flow_keys.h"
#include "rules.h"
#include "set.h"
#include "syn.h"
#include "tags.h"
#include "top.h"

/*
 * What is on. All are fixed at load time, and the verifier removes the code of what is off.
 *
 *   filter_needs_keys: a rule, the talkers or a protected service need addresses or ports
 *   filter_ruled: there are rules
 *   filter_bonds: an interface of the data plane is a bond
 */
const volatile bool filter_needs_keys;
const volatile bool filter_ruled;
const volatile bool filter_bonds;

/*
 * The next program: rx of the same data plane, or another program in front of it. Writer: datapath, before this program
 * is attached.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} filter_rest SEC(".maps");

/* Drops a packet whose headers the filter cannot read as far as it has to. */
static __always_inline int filter_refuse(struct xdp_md *ctx, const struct flow_keys *keys,
					 __u32 reason)
{
	if (filter_top_by)
		filter_top(ctx, keys);
	if (filter_tracing)
		filter_trace(FILTER_TRACE_REASON + reason);
	return filter_leave(ctx, reason, bpf_xdp_get_buff_len(ctx));
}

/*
 * Runs in front of rx on an interface, so that a packet that it drops costs nothing more. A change of rules or services
 * replaces the program as a whole: no packet sees half of a change.
 *
 * Nothing but the end returns XDP_PASS. Where user space puts a straight way in the place of this program
 * (filterplane), it has this code as a function, which returns XDP_PASS in the place of the tail call.
 */
SEC("xdp.frags")
int filter(struct xdp_md *ctx)
{
	__u32 answer = 0, reason, len, hidden = 0;
	struct filter_tags tags;
	struct flow_keys keys = {};
	bool tagged;

	capture_hand_on(ctx);
	if (filter_bonds && filter_leaves_alone(ctx))
		goto next;
	if (filter_protects && SFLOW_ON)
		sflow_peek(ctx); /* before the tags are hidden */
	if (filter_needs_keys) {
		flow_keys_parse(ctx, &keys, 0);
		tagged = !keys.l3;
	} else {
		tagged = filter_tagged(ctx);
	}
	if (tagged) {
		__builtin_memset(&tags, 0, sizeof(tags));
		reason = filter_hide_tags(ctx, &tags);
		hidden = tags.hidden;
		if (filter_needs_keys)
			flow_keys_parse(ctx, &keys, 1);
		if (!reason && keys.missed & filter_must)
			reason = DROP_FILTER_HEADERS;
		if (reason && (filter_ruled || filter_protects)) {
			if (hidden && SFLOW_ON)
				filter_show_tags(ctx, &tags); /* it is shown as it came in */
			return filter_refuse(ctx, &keys, reason);
		}
	}
	if (filter_top_by)
		filter_top(ctx, &keys);
	if (filter_ruled)
		answer = filter_rules(ctx, &keys);
	reason = answer & FILTER_REASON;
	if (filter_protects && !reason) {
		answer = filter_syn(ctx, &keys);
		if (answer) {
			len = answer >> FILTER_LEN_SHIFT ?: bpf_xdp_get_buff_len(ctx);
			reason = answer & FILTER_REASON;
			if (hidden && SFLOW_ON && reason < REASON_FWD)
				filter_show_tags(ctx, &tags); /* as above */
			return filter_leave(ctx, reason, len);
		}
	}
	if (hidden && SFLOW_ON && reason && reason != FILTER_PASS)
		filter_show_tags(ctx, &tags);
	if (reason && reason != FILTER_PASS)
		return filter_leave(ctx, reason, answer >> FILTER_LEN_SHIFT);
	if (hidden && filter_show_tags(ctx, &tags))
		return filter_leave(ctx, DROP_FILTER_TAGS, bpf_xdp_get_buff_len(ctx));
next:
	bpf_tail_call(ctx, &filter_rest, 0);
	capture_front_out(ctx, PASS_OTHER);
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
