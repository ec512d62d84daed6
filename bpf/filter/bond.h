/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_FILTER_BOND_H
#define CULVERT_FILTER_BOND_H

#include "core/bytes.h"
#include "core/port.h"

/* Slow protocols (IEEE 802.3, annex 57A): LACP, by which the ends of a bond agree on its members. */
#define ETH_P_SLOW_PROTOCOLS 0x8809

/*
 * Whether the filter leaves a packet that came in by a member of a bond alone. The bond takes none of a standby member. LACP is
 * no traffic of the bond but what keeps it up.
 */
static __always_inline bool filter_leaves_alone(struct xdp_md *ctx)
{
	const void *data = (void *)(long)ctx->data;
	const void *data_end = (void *)(long)ctx->data_end;
	__u32 ifindex = ctx->ingress_ifindex;
	const struct port *port = bpf_map_lookup_elem(&ports, &ifindex);

	if (!port || port->slot || !port->dev)
		return false;
	return port->spread & PORT_STANDBY ||
	       (data + ETH_HLEN <= data_end &&
		LOAD16(data + 12) == bpf_htons(ETH_P_SLOW_PROTOCOLS));
}

/*
 * The index by which rules know the interface that a packet came in by. Only rules of a data plane with bonds call it: for
 * others it is that in the context.
 */
__noinline int filter_dev(struct xdp_md *ctx)
{
	return port_dev(ctx->ingress_ifindex);
}

#endif
