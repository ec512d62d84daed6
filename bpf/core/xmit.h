/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_XMIT_H
#define CULVERT_CORE_XMIT_H

#include "port.h"

/*
 * The index of the device that a packet came in by. volatile keeps clang from selecting between the addresses of two
 * fields: the verifier refuses arithmetic on ctx.
 */
static __always_inline __u32 ingress(const struct xdp_md *ctx)
{
	return *(volatile const __u32 *)&ctx->ingress_ifindex;
}

/*
 * Sends a frame back by the interface that it came in by. A redirect is preferred: a frame sent by XDP_TX stays in a
 * veth until something else wakes the peer. The kernel sends by a bond in either case if the frame came in by a member.
 */
static __always_inline int xmit(const struct port *port)
{
	return port && port->xmit ? bpf_redirect(port->dev, 0) : XDP_TX;
}

/* The same for a frame that may have several buffers. */
static __always_inline int xmit_buffers(struct xdp_md *ctx, const struct port *port)
{
	if (port && port->spread & PORT_LINEAR && !one_buffer(ctx))
		return XDP_TX;
	return xmit(port);
}

#endif
