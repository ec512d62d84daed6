/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_XMIT_H
#define CULVERT_CORE_XMIT_H

#include "port.h"

/*
 * The index of the interface that a packet came in by. volatile keeps clang from selecting between the addresses of two
 * fields: the verifier refuses arithmetic on ctx.
 */
static __always_inline __u32 ingress(const struct xdp_md *ctx)
{
	return *(volatile const __u32 *)&ctx->ingress_ifindex;
}

/*
 * Sends a frame back by the interface that it came in by. A redirect is preferred: a frame sent by XDP_TX stays in a
 * veth until something else wakes the peer.
 */
static __always_inline int xmit(struct xdp_md *ctx, const struct port *port)
{
	__u32 ifindex = ingress(ctx);

	return port && port->xmit ? bpf_redirect(ifindex, 0) : XDP_TX;
}

#endif
