/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_XMIT_H
#define CULVERT_CORE_XMIT_H

#include "port.h"

/*
 * Sends a frame back by the interface that it came in by. It is redirected there if it can be: what XDP_TX
 * sends, a veth leaves lying until something else wakes its peer.
 */
static __always_inline int xmit(struct xdp_md *ctx, const struct port *port)
{
	return port && port->xmit ? bpf_redirect(ctx->ingress_ifindex, 0) : XDP_TX;
}

#endif
