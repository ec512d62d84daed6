/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_VERDICT_H
#define CULVERT_CORE_VERDICT_H

#include "limit.h"
#include "packet.h"

/* The one way out: counts the packet under its reason and does what the reason says. */
static __always_inline int verdict(struct xdp_md *ctx, struct packet *pkt, __u32 reason)
{
	int action = XDP_PASS;

	if (reason >= REASON_LIMITED) {
		action = XDP_DROP;
	} else if (balance_on && reason >= FWD_BALANCE_ECHO && !pkt->egress) {
		action = XDP_TX; /* an answer, where nothing can be redirected to */
	} else if (reason >= REASON_FWD) {
		action = bpf_redirect(pkt->egress, 0);
	} else if (reason >= REASON_DROP) {
		action = XDP_DROP;
	} else if (reason == PASS_OTHER) {
		/* not parsed as far as to know all its buffers */
		pkt->len = bpf_xdp_get_buff_len(ctx);
	}
	if (pkt->port)
		count(pkt->port->slot - 1, reason, pkt->len);
	return action;
}

#endif
