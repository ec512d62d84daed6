/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_ETH_H
#define CULVERT_CORE_ETH_H

#include "packet.h"

/* Length of an Ethernet header, with a tag if vlan has one. */
static __always_inline __u32 eth_len(__u16 vlan)
{
	return vlan ? ETH_HLEN + VLAN_HLEN : ETH_HLEN;
}

/*
 * Writes the Ethernet header that a frame leaves with, all but the type of what follows it. vlan is
 * PACKET_TAGGED + VLAN ID, or 0 for no tag. The frame has room for the header: eth_len(vlan).
 */
static __always_inline void eth_write(void *data, const __u8 *dmac, const __u8 *smac, __u16 vlan)
{
	copy(data, dmac, 6);
	copy(data + 6, smac, 6);
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
