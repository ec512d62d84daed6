/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_NEXT_HOP_H
#define CULVERT_CORE_NEXT_HOP_H

#include "packet.h"

/* How frames leave to a neighbor. User space writes it; the element that it is part of has the sequence counter. */
struct next_hop {
	__u32 port; /* index of the interface that frames leave by; 0: not known */
	__u16 mtu; /* of the IP packet, bytes */
	__u16 vlan; /* PACKET_TAGGED + VLAN ID to put on, or 0 */
	__u8 dmac[6];
	__u8 linear_only; /* the port takes no frames of several buffers */
	__u8 pad;
	__u8 smac[6];
	__u8 pad2[2];
} __attribute__((aligned(8))); /* for copies of 8 bytes at once */

/* Whether the port takes a frame of so many buffers. */
static __always_inline bool next_hop_takes(struct xdp_md *ctx, const struct next_hop *hop)
{
	__u64 linear = (void *)(long)ctx->data_end - (void *)(long)ctx->data;

	return !hop->linear_only || linear >= bpf_xdp_get_buff_len(ctx);
}

/* How many bytes a frame grows by when it leaves with another tag than it came with. */
static __always_inline int eth_growth(__u16 to, __u16 from)
{
	return (to ? VLAN_HLEN : 0) - (from ? VLAN_HLEN : 0);
}

/*
 * Writes the Ethernet header that a frame leaves with, all but the type of what follows it. vlan is
 * PACKET_TAGGED + VLAN ID, or 0 for no tag. The frame has room for the header.
 */
static __always_inline void eth_write(void *data, const struct next_hop *hop, __u16 vlan)
{
	copy(data, hop->dmac, 6);
	copy(data + 6, hop->smac, 6);
	if (vlan) {
		STORE16(data + 12, bpf_htons(ETH_P_8021Q));
		STORE16(data + 14, bpf_htons(vlan & 0xfff));
	}
}

/* The type of what follows the Ethernet header: ip is where that begins. */
static __always_inline void eth_write_type(void *ip, bool v6)
{
	STORE16(ip - 2, v6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP));
}

#endif
