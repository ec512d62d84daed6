/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_VERDICT_H
#define CULVERT_CORE_VERDICT_H

#include "capture.h"
#include "counters.h"
#include "limit.h"
#include "packet.h"
#include "rewrite.h"
#include "sflow.h"
#include "xmit.h"

#ifdef CULVERT_SFLOW
/* The interface that a packet goes out by, 0 if it does not go out. */
static __always_inline __u32 egress_of(struct xdp_md *ctx, const struct packet *pkt, __u32 reason)
{
	if (reason < REASON_FWD)
		return 0;
	return reason < REASON_XMIT ? pkt->egress : port_dev(ingress(ctx));
}

/* This is a call of its own, so that the object of a capture that runs without sFlow keeps its registers. */
static __noinline int sflow_verdict(struct xdp_md *ctx, const struct packet *pkt, __u32 reason)
{
	return sflow_show(ctx, pkt->port, reason, egress_of(ctx, pkt, reason), pkt->sampled);
}
#endif

#ifdef CULVERT_CAPTURE

static __noinline int capture_show_verdict(struct xdp_md *ctx, const struct packet *pkt,
					   __u32 reason)
{
	capture_show_out(ctx, pkt->captured == CAPTURE_SELECTED, reason,
			 egress_of(ctx, pkt, reason));
	return 0;
}

/* Shows a packet with its reason to a capture. */
static __always_inline void capture_verdict(struct xdp_md *ctx, const struct packet *pkt,
					    __u32 reason)
{
	if (pkt->captured == CAPTURE_SELECTED ||
	    (pkt->captured == CAPTURE_OTHER && reason >= REASON_FWD &&
	     capture_matches(ctx, egress_of(ctx, pkt, reason))))
		capture_show_verdict(ctx, pkt, reason);
}

#else

static __always_inline void capture_verdict(struct xdp_md *ctx, const struct packet *pkt,
					    __u32 reason)
{
}

#endif

/* The only way out of the pipeline: carries out the verdict of the reason, and counts the packet under the reason. */
static __always_inline int verdict(struct xdp_md *ctx, struct packet *pkt, __u32 reason)
{
	int action = XDP_PASS;

	if (reason >= REASON_FWD) {
		action = reason < REASON_XMIT ? bpf_redirect(pkt->egress, 0)
					      : xmit_buffers(ctx, pkt->port);
		if (rewritten(pkt) && rewrite_apply(ctx, pkt, rewritten(pkt)))
			action = XDP_ABORTED; /* counted as a loss: see losses.bpf.c */
	} else if (reason >= REASON_DROP) {
		action = XDP_DROP;
	} else if (reason >= REASON_PUNT) {
		reason = limit(pkt, reason);
		if (reason >= REASON_LIMITED)
			action = XDP_DROP;
		STAGE_PUNTED(ctx, reason);
	} else if (reason == PASS_OTHER) {
		/* pkt->len may be the length of the first buffer only. */
		pkt->len = bpf_xdp_get_buff_len(ctx);
	}
	capture_verdict(ctx, pkt, reason);
#ifdef CULVERT_SFLOW
	if (SFLOW_ON && sflow_wanted(pkt->port, reason, pkt->sampled))
		sflow_verdict(ctx, pkt, reason);
#endif
	if (pkt->port)
		count(pkt->port->slot - 1, reason, pkt->len);
	return action;
}

#endif
