// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "stages.h"

#include "example/stage.h"
#include "lb/stage.h"
#include "route/stage.h"
#include "scion/flow_hash.h"
#include "scion/stage.h"

#include "core/capture.h"
#include "core/parse.h"
#include "core/unfinished.h"
#include "core/verdict.h"
#include "core/worker.h"

/* These keep the enums in the BTF, from which user space takes the names. */
const enum reason *reason_names __attribute__((unused));
const enum reason_block *reason_blocks __attribute__((unused));
const enum route_action *route_actions __attribute__((unused));
const enum route_fixed *route_fixed_hops __attribute__((unused));
const enum lb_encap *lb_encaps __attribute__((unused));
const enum lb_event *lb_events_of __attribute__((unused));
const enum lb_unclaimed *lb_unclaimed_of __attribute__((unused));
const enum lb_flow_state *lb_flow_states __attribute__((unused));

/*
 * No stage returns less than REASON_NONE. The test is still <=, because the verifier of Linux 6.1 learns no bounds from
 * ==. The verifier needs them to see that no stage runs after one that has changed the packet: packet pointers are
 * invalid then.
 */
#define ASK(name, NAME)            \
	if (reason <= REASON_NONE) \
		reason = name##_stage(ctx, &pkt);

/*
 * The way of a packet: it is parsed once, the stages are asked in their order, and the verdict is carried out. Whether
 * a stage is on is constant at load time, so a stage that is off costs nothing.
 */
static __always_inline int pipeline(struct xdp_md *ctx)
{
	int reason = REASON_NONE;
	struct packet pkt = {};

#ifdef CULVERT_CAPTURE
	pkt.captured = capture_in(ctx);
#endif
	parse(ctx, &pkt);
	STAGES(ASK)
	if (reason <= REASON_NONE)
		reason = PASS_OTHER;
	return verdict(ctx, &pkt, reason);
}

/* Attached to interfaces. With workers, most packets go through the pipeline on another CPU. */
SEC("xdp.frags")
int rx(struct xdp_md *ctx)
{
	if (worker_count && cpumap_enqueue(ctx)) {
		capture_enqueued(ctx);
		return XDP_REDIRECT;
	}
	return pipeline(ctx);
}

/* Runs on a worker's CPU, on the packets that rx has enqueued for it. */
SEC("xdp.frags/cpumap")
int worker(struct xdp_md *ctx)
{
	int action = pipeline(ctx);

	if (action == XDP_PASS)
		unfinished_finish(ctx);
	return action;
}

char _license[] SEC("license") = "Dual BSD/GPL";
